package sock_test

import (
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// forEachListener runs f with each kind of listener and a function that connects to it.
func forEachListener(t *testing.T, f func(t *testing.T, l *sock.Socket, dial func() *sock.Socket)) {
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
		l := listenUnix(t, name, 0)
		f(t, l, func() *sock.Socket {
			s, err := sock.New(sock.Unix)
			if closeLater(t, s, err); s.ConnectUnix(name) != nil {
				t.Fatal("timed out waiting for the connection")
			}
			return s
		})
	})
}

func TestAccept(t *testing.T) {
	forEachListener(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		for range 2 {
			if s, err := l.Accept(); s != nil || err != sock.ErrWouldBlock {
				t.Fatalf("without a connection: %v, %v", s, err)
			}
			if l.Acceptable() {
				t.Error("acceptable without a connection")
			}
			c := dial()
			if !l.Acceptable() {
				t.Error("not acceptable with a connection")
			}
			s := accept(t, l)
			if l.Acceptable() {
				t.Error("acceptable after the only connection was accepted")
			}
			checkFlags(t, s)
			if s.LocalAddr() != l.LocalAddr() || s.RemoteAddr() != c.LocalAddr() || s.LocalPath() != l.LocalPath() {
				t.Errorf("between %v, %q and %v", s.LocalAddr(), s.LocalPath(), s.RemoteAddr())
			}
			send(t, c, "hello")
			wantReceive(t, s, 64, "hello")
			if short, tcp := fdstate.Of(s.SyscallConn()).Drained(fdstate.Recv), l.LocalPath() == ""; short != tcp {
				t.Errorf("a short receive drains: %v", short)
			}
			c.Close()
			waitPoll(t, s, ended)
			if _, err := s.Recv(make([]byte, 1)); err != io.EOF {
				t.Errorf("the stream ends with %v", err)
			}
		}
	})
}

func TestAcceptInto(t *testing.T) {
	forEachListener(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		var s sock.Socket
		for _, data := range []string{"one", "two", "three"} { // reuse the Socket
			if err := l.AcceptInto(&s); err != sock.ErrWouldBlock || s.Handle() != none {
				t.Fatal(err)
			}
			send(t, dial(), data)
			waitPoll(t, l, in)
			must(t, l.AcceptInto(&s))
			wantReceive(t, &s, 64, data)
			must(t, s.Close())
		}
	})
}

// AcceptInto fails for a Socket that is open or still in use. The Socket is unchanged, and the connection stays
// pending.
func TestAcceptIntoOpen(t *testing.T) {
	l := listen(t, sock.Loopback)
	a, b := unixPair(t, false)
	connect(t, l.LocalAddr())
	waitPoll(t, l, in)
	before := a.Handle()
	refused := func(what string, into *sock.Socket) {
		t.Helper()
		err := l.AcceptInto(into)
		wantError(t, err, "accept", l.Handle(), nil)
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
	refused("closed, but still in use", a)
	fdstate.Of(a.SyscallConn()).Done()
	if err := l.AcceptInto(a); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// A connection that is aborted before it is accepted does not break the listener.
func TestAcceptAborted(t *testing.T) {
	l := listen(t, sock.Loopback)
	for range 3 {
		c := connect(t, l.LocalAddr())
		waitPoll(t, c, out)
		waitPoll(t, l, in)
		must(t, c.SetLinger(0))
		c.Close()
	}
	good := connect(t, l.LocalAddr())
	send := func() bool { _, err := good.Send([]byte("good")); return err == nil }
	waitPoll(t, good, out)
	if !send() {
		t.Fatal("timed out waiting for the connection")
	}
	for {
		waitPoll(t, l, in)
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, s, err)
		waitPoll(t, s, in)
		b := make([]byte, 8)
		n, err := s.Recv(b)
		if err == nil {
			if string(b[:n]) != "good" {
				t.Errorf("%q", b[:n])
			}
			return
		}
		wantError(t, err, "recv", s.Handle(), unix.ECONNRESET)
	}
}

func TestAcceptFails(t *testing.T) {
	for _, s := range []*sock.Socket{bound(t, sock.TCP4, sock.Loopback), bound(t, sock.UDP4, sock.Loopback)} {
		c, err := s.Accept()
		if c != nil {
			t.Error("Accept succeeded")
		}
		wantError(t, err, "accept", s.Handle(), nil)
		var into sock.Socket
		wantError(t, s.AcceptInto(&into), "accept", s.Handle(), nil)
		if into.Handle() != none {
			t.Error("the Socket is open")
		}
	}
}
