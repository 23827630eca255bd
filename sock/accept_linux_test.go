package sock_test

import (
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// accepting runs a test with each kind of listener and a way to connect to it.
func accepting(t *testing.T, f func(t *testing.T, l *sock.Socket, dial func() *sock.Socket)) {
	for _, c := range kinds[:2] {
		t.Run(c.name, func(t *testing.T) {
			on := sock.Loopback
			if c.name == "tcp6" {
				needV6(t)
				on = sock.Loopback6
			}
			l := listen(t, on)
			f(t, l, func() *sock.Socket { return connect(t, l.LocalAddr()) })
		})
	}
	t.Run("unix", func(t *testing.T) {
		name := abstract("accept")
		l, err := sock.ListenUnix(name, sock.ListenOptions{})
		keep(t, l, err)
		f(t, l, func() *sock.Socket {
			s, err := sock.New(sock.Unix)
			if keep(t, s, err); s.ConnectUnix(name) != nil {
				t.Fatal("no connection")
			}
			return s
		})
	})
}

func TestAccept(t *testing.T) {
	accepting(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		for range 2 {
			if s, err := l.Accept(); s != nil || err != sock.ErrWouldBlock {
				t.Fatalf("before anybody connects: %v, %v", s, err)
			}
			if l.Acceptable() {
				t.Error("acceptable before anybody connects")
			}
			c := dial()
			if !l.Acceptable() {
				t.Error("not acceptable with a connection")
			}
			s := accept(t, l)
			if l.Acceptable() {
				t.Error("acceptable when all are accepted")
			}
			wellMade(t, s)
			if s.LocalAddr() != l.LocalAddr() || s.RemoteAddr() != c.LocalAddr() || s.LocalPath() != l.LocalPath() {
				t.Errorf("between %v, %q and %v", s.LocalAddr(), s.LocalPath(), s.RemoteAddr())
			}
			send(t, c, "hello")
			if got := receive(t, s, 64); got != "hello" {
				t.Errorf("%q", got)
			}
			if short, tcp := fdstate.Of(s.SyscallConn()).Drained(fdstate.Recv), l.LocalPath() == ""; short != tcp {
				t.Errorf("a short receive vouches: %v", short)
			}
			c.Close()
			settle(t, s, ended)
			if _, err := s.Recv(make([]byte, 1)); err != io.EOF {
				t.Errorf("it is a stream, but ends in %v", err)
			}
		}
	})
}

func TestAcceptInto(t *testing.T) {
	accepting(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		var s sock.Socket
		for _, data := range []string{"one", "two", "three"} { // again into the same
			if err := l.AcceptInto(&s); err != sock.ErrWouldBlock || s.Handle() != none {
				t.Fatal(err)
			}
			send(t, dial(), data)
			settle(t, l, in)
			if err := l.AcceptInto(&s); err != nil {
				t.Fatal(err)
			}
			if got := receive(t, &s, 64); got != data {
				t.Errorf("%q, want %q", got, data)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// One that is open, or used still, stays what it is, and the connection waits for another.
func TestAcceptIntoOpen(t *testing.T) {
	l := listen(t, sock.Loopback)
	a, b := unixPair(t, false)
	connect(t, l.LocalAddr())
	settle(t, l, in)
	before := a.Handle()
	refused := func(what string, into *sock.Socket) {
		t.Helper()
		err := l.AcceptInto(into)
		failed(t, err, "accept", l.Handle(), nil)
		if err == nil || !strings.Contains(err.Error(), "is open") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("open", a)
	refused("the listener itself", l)
	send(t, a, "still here")
	if got := receive(t, b, 64); got != "still here" || a.Handle() != before {
		t.Errorf("%q through %d, not %d", got, a.Handle(), before)
	}
	fdstate.Of(a.SyscallConn()).Use()
	a.Close()
	refused("closed, but a call is under way", a)
	fdstate.Of(a.SyscallConn()).Done()
	if err := l.AcceptInto(a); err != nil {
		t.Errorf("now that it is closed: %v", err)
	}
}

// A client that gives up before it is accepted does the listener no harm.
func TestAcceptAborted(t *testing.T) {
	l := listen(t, sock.Loopback)
	for range 3 {
		c := connect(t, l.LocalAddr())
		settle(t, c, out)
		settle(t, l, in)
		if err := c.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	good := connect(t, l.LocalAddr())
	send := func() bool { _, err := good.Send([]byte("good")); return err == nil }
	settle(t, good, out)
	if !send() {
		t.Fatal("not connected")
	}
	for {
		settle(t, l, in)
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		keep(t, s, err)
		settle(t, s, in)
		b := make([]byte, 8)
		n, err := s.Recv(b)
		if err == nil {
			if string(b[:n]) != "good" {
				t.Errorf("%q", b[:n])
			}
			return
		}
		failed(t, err, "recv", s.Handle(), unix.ECONNRESET)
	}
}

func TestAcceptFails(t *testing.T) {
	for _, s := range []*sock.Socket{bound(t, sock.TCP4, sock.Loopback), bound(t, sock.UDP4, sock.Loopback)} {
		c, err := s.Accept()
		if c != nil {
			t.Error("it accepted")
		}
		failed(t, err, "accept", s.Handle(), nil)
		var into sock.Socket
		failed(t, s.AcceptInto(&into), "accept", s.Handle(), nil)
		if into.Handle() != none {
			t.Error("it is open")
		}
	}
}
