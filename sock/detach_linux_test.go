package sock_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/sock"
)

// dialPair returns both ends of a connection of package net.
func dialPair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	l := netListen(t, network, address)
	defer l.Close()
	client = netDial(t, l.Addr())
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// wantEcho sends data in both directions and verifies that it arrives.
func wantEcho(t *testing.T, s *sock.Socket, peer net.Conn) {
	t.Helper()
	send(t, s, "ping")
	buf := make([]byte, 4)
	if _, err := io.ReadFull(peer, buf); err != nil || string(buf) != "ping" {
		t.Fatalf("%q, %v", buf, err)
	}
	if _, err := peer.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	waitReadable(t, s, 4)
	if got := receive(t, s, 64); got != "pong" {
		t.Fatalf("%q", got)
	}
}

func TestDetachConn(t *testing.T) {
	handles.NoneLeft(t, "")
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		client, server := dialPair(t, network, address)
		if _, err := client.Write([]byte("unread")); err != nil {
			t.Fatal(err)
		}
		s := detach(t, server, sock.RefuseBlocking)
		checkFlags(t, s)
		waitReadable(t, s, 6)
		if got := receive(t, s, 64); got != "unread" {
			t.Errorf("%s: %q", network, got)
		}
		wantEcho(t, s, client)
		if network == "tcp4" && s.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("from %v, not %v", s.RemoteAddr(), client.LocalAddr())
		}
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Read on the detached connection: %v", network, err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Write on the detached connection: %v", network, err)
		}
		server.Close() // does not close the Socket
		wantEcho(t, s, client)
	}
}

func TestDetachPacketConn(t *testing.T) {
	handles.NoneLeft(t, "")
	for network, address := range map[string]string{"udp4": "127.0.0.1:0", "unixgram": filepath.Join(t.TempDir(), "s")} {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		peer, err := net.Dial(network, c.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		s := detach(t, c, sock.RefuseBlocking)
		for _, data := range []string{"datagram", "", "another"} {
			if _, err := peer.Write([]byte(data)); err != nil {
				t.Fatal(err)
			}
			if got := receive(t, s, 64); got != data {
				t.Errorf("%s: %q", network, got)
			}
		}
		if _, _, err := c.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Read on the detached connection: %v", network, err)
		}
	}
}

func TestDetachListener(t *testing.T) {
	handles.NoneLeft(t, "")
	path := filepath.Join(t.TempDir(), "s")
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "unix": path} {
		l := netListen(t, network, address)
		accepting := make(chan error)
		go func() {
			_, err := l.Accept()
			accepting <- err
		}()
		at := l.Addr().String()
		s := detach(t, l, sock.RefuseBlocking)
		if err := <-accepting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Accept on the detached listener: %v", network, err)
		}
		client, err := net.Dial(network, at)
		if err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		defer client.Close()
		wantEcho(t, accept(t, s), client)
		l.Close()
		if s.Close(); network == "unix" {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the path is gone: %v", err)
			}
		}
	}
}

// A duplicate and its original are the same socket, and can be closed independently.
func TestDup(t *testing.T) {
	handles.NoneLeft(t, "")
	path := filepath.Join(t.TempDir(), "s")
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "unix": path} {
		l := netListen(t, network, address)
		s, err := sock.Dup(l, sock.RefuseBlocking)
		closeLater(t, s, err)
		for _, by := range []string{"the duplicate", "the duplicate", "the listener"} {
			client := netDial(t, l.Addr())
			if by == "the listener" {
				s.Close()
				server, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				server.Close()
			} else {
				wantEcho(t, accept(t, s), client)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if d, err := sock.Dup(l, sock.RefuseBlocking); d != nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dup of a closed listener = %v", err)
		}
	}
	if d, err := sock.Dup(path, sock.RefuseBlocking); d != nil || err == nil {
		t.Error("Dup of a string succeeded")
	}
}

// A Read that is blocked on the connection fails with net.ErrClosed and consumes no later bytes.
func TestDetachDuringRead(t *testing.T) {
	handles.NoneLeft(t, "")
	client, server := dialPair(t, "tcp4", "127.0.0.1:0")
	reading, ended := make(chan struct{}), make(chan error)
	go func() {
		buf := make([]byte, 1)
		server.Read(buf)
		close(reading)
		_, err := server.Read(buf) // blocked or about to block: both fail in the same way
		ended <- err
	}()
	client.Write([]byte("x"))
	<-reading
	s := detach(t, server, sock.RefuseBlocking)
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	wantEcho(t, s, client)
}

func TestDetachBlocking(t *testing.T) {
	handles.NoneLeft(t, "")
	client, server := dialPair(t, "tcp4", "127.0.0.1:0")
	f, err := server.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := f.Fd()
	if err := unix.SetNonblock(int(h), false); err != nil || !blocking(t, h) { // changes the mode of the open file
		t.Fatal(err)
	}
	s, err := sock.Detach(server, sock.RefuseBlocking)
	if s != nil || !errors.Is(err, sock.ErrBlocking) || !blocking(t, h) {
		t.Errorf("%v, %v", s, err)
	}
	client.Write([]byte("x"))
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Errorf("the owner cannot use the connection: %v", err)
	}
	s, err = sock.Detach(server, sock.MakeNonblocking)
	closeLater(t, s, err)
	if blocking(t, h) {
		t.Error("the handle is still blocking")
	}
	wantEcho(t, s, client)
}

// A fakeConn is a connection whose SyscallConn and Close may fail.
type fakeConn struct {
	*net.TCPConn
	raw      error // error of SyscallConn
	closed   error // error of Close
	wasAsked bool
}

func (o *fakeConn) SyscallConn() (syscall.RawConn, error) {
	if o.raw != nil {
		return nil, o.raw
	}
	return o.TCPConn.SyscallConn()
}

func (o *fakeConn) Close() error {
	o.wasAsked = true
	if o.closed != nil {
		return o.closed
	}
	return o.TCPConn.Close()
}

// If Detach fails, the connection is unchanged.
func TestDetachFails(t *testing.T) {
	handles.NoneLeft(t, "")
	errOdd := errors.New("SyscallConn failed")
	client, server := dialPair(t, "tcp4", "127.0.0.1:0")
	tcp := server.(*net.TCPConn)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	shut, _ := dialPair(t, "tcp4", "127.0.0.1:0")
	shut.Close()
	for _, c := range []struct {
		name  string
		from  any
		cause error // nil: any
		says  string
	}{
		{"nothing", nil, nil, "no SyscallConn or Close method"},
		{"a number", 7, nil, "no SyscallConn or Close method"},
		{"a nil connection", (*net.TCPConn)(nil), os.ErrInvalid, "nil connection"},
		{"a TLS connection", tls.Client(server, &tls.Config{}), nil, "no SyscallConn or Close method"},
		{"nothing to close", struct{ syscall.Conn }{tcp}, nil, "no SyscallConn or Close method"},
		{"nothing to ask", struct{ io.Closer }{tcp}, nil, "no SyscallConn or Close method"},
		{"a pipe", r, unix.ENOTSOCK, "detach"},
		{"closed", shut, net.ErrClosed, "detach"},
		{"refuses", &fakeConn{TCPConn: tcp, raw: errOdd}, errOdd, "detach"},
	} {
		s, err := sock.Detach(c.from, sock.MakeNonblocking)
		var e *sock.Error
		if s != nil || !errors.As(err, &e) || c.cause != nil && !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", c.name, s, err)
		}
	}
	restore := exhaust(t, 0)
	s, err := sock.Detach(server, sock.RefuseBlocking)
	restore()
	if s != nil || !sock.IsExhausted(err) {
		t.Errorf("without descriptors: %v, %v", s, err)
	}
	go client.Write([]byte("still here"))
	buf := make([]byte, 10)
	if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "still here" {
		t.Errorf("%q, %v", buf, err)
	}
}

// If the connection is closed concurrently, Detach fails. Any other error of Close is ignored.
func TestDetachCloseErrors(t *testing.T) {
	handles.NoneLeft(t, "")
	client, server := dialPair(t, "tcp4", "127.0.0.1:0")
	o := &fakeConn{TCPConn: server.(*net.TCPConn), closed: net.ErrClosed}
	if s, err := sock.Detach(o, sock.RefuseBlocking); s != nil || !errors.Is(err, net.ErrClosed) || !o.wasAsked {
		t.Errorf("%v, %v", s, err)
	}
	o.closed = errors.New("close failed")
	s := detach(t, o, sock.RefuseBlocking)
	wantEcho(t, s, client)
}

// A listener of package net uses MPTCP if the system supports it. A connection that it accepts is still recognized
// as TCP, so a short receive drains it.
func TestDetachedListenersAreTCP(t *testing.T) {
	handles.NoneLeft(t, "")
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := detach(t, l, sock.RefuseBlocking)
	peer := netDial(t, l.Addr())
	if _, err := peer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	var c sock.Socket
	for err := s.AcceptInto(&c); err != nil; err = s.AcceptInto(&c) {
		if err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
	}
	defer c.Close()
	waitPoll(t, &c, in)
	recv(t, &c, 64, "hello", nil)
	if !fdstate.Of(c.SyscallConn()).Drained(fdstate.Recv) {
		t.Error("a short receive does not drain")
	}
}

// A strangeRaw duplicates like another connection, and then goes wrong.
type strangeRaw struct {
	syscall.RawConn
	then func() error
}

func (r strangeRaw) SyscallConn() (syscall.RawConn, error) { return r, nil }

func (r strangeRaw) Control(f func(uintptr)) error {
	if err := r.RawConn.Control(f); err != nil {
		return err
	}
	return r.then()
}

// A connection whose Control fails, panics or ends its goroutine after the handle was duplicated leaves no handle behind.
func TestDupOfStrangeConn(t *testing.T) {
	client, _ := dialPair(t, "tcp4", "127.0.0.1:0")
	raw, err := client.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	handles.NoneLeft(t, "")
	for name, then := range map[string]func() error{
		"fails": func() error { return io.ErrUnexpectedEOF }, "panics": func() error { panic("strange") },
		"ends": func() error { runtime.Goexit(); return nil },
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer func() { recover() }()
			if _, err := sock.Dup(strangeRaw{raw, then}, sock.MakeNonblocking); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", name, err)
			}
		}()
		<-over
	}
}
