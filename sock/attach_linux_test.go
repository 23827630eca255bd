package sock_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/sock"
)

func TestAttach(t *testing.T) {
	handles.NoneLeft(t, "")
	forEachStream(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		send(t, a, "unread")
		c := attach(t, b)
		if b.Handle() != none || !errors.Is(b.Close(), net.ErrClosed) {
			t.Error("the Socket is still open")
		}
		buf := make([]byte, 6)
		if _, err := io.ReadFull(c, buf); string(buf) != "unread" || err != nil {
			t.Errorf("%q, %v", buf, err)
		}
		if k.tcp && c.RemoteAddr().String() != a.LocalAddr().String() {
			t.Errorf("from %v, not %v", c.RemoteAddr(), a.LocalAddr())
		}
		wantEcho(t, a, c)
		// The connection uses Go's poller: reads block and have deadlines.
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("at its deadline: %v", err)
		}
		c.SetReadDeadline(time.Time{})
		read := make(chan error)
		go func() {
			_, err := io.ReadFull(c, buf)
			read <- err
		}()
		send(t, a, "wakes!")
		if err := <-read; err != nil || string(buf) != "wakes!" {
			t.Errorf("%q, %v", buf, err)
		}
		_, err := c.Write(buf)
		for ; err == nil; _, err = c.Write(make([]byte, 1<<16)) { // until the buffers are full
			c.SetWriteDeadline(time.Now().Add(time.Millisecond))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("at its write deadline: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A connection can be attached and detached repeatedly.
func TestAttachDetach(t *testing.T) {
	handles.NoneLeft(t, "")
	forEachStream(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		peer := attach(t, a)
		for range 3 {
			c, err := sock.Attach(b)
			if err != nil {
				t.Fatal(err)
			}
			b, err = sock.Detach(c, sock.RefuseBlocking)
			closeLater(t, b, err)
			wantEcho(t, b, peer)
		}
	})
}

func TestAttachPacketConn(t *testing.T) {
	handles.NoneLeft(t, "")
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		at := b.LocalAddr()
		c, err := sock.AttachPacketConn(b)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sendTo(t, a, "there", at)
		buf := make([]byte, 64)
		n, from, err := c.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "there" || from.String() != a.LocalAddr().String() {
			t.Fatalf("%q from %v, %v", buf[:n], from, err)
		}
		if _, err := c.WriteTo([]byte("back"), from); err != nil {
			t.Fatal(err)
		}
		wantReceive(t, a, 64, "back")
		c.SetReadDeadline(time.Unix(1, 0))
		if _, _, err := c.ReadFrom(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("at its deadline: %v", err)
		}
	})
	a, b := unixPair(t, true)
	c, err := sock.AttachPacketConn(b)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send(t, a, "datagram")
	buf := make([]byte, 64)
	if n, _, err := c.ReadFrom(buf); string(buf[:n]) != "datagram" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	// A connected datagram socket can also become a net.Conn.
	x, y := udpOn(t, sock.Loopback)
	conn := attach(t, y)
	wantEcho(t, x, conn)
}

func TestAttachListener(t *testing.T) {
	handles.NoneLeft(t, "")
	path := filepath.Join(t.TempDir(), "s")
	unixListener, err := sock.ListenUnix(path, sock.ListenOptions{})
	for network, s := range map[string]*sock.Socket{"tcp": listen(t, sock.Loopback), "unix": closeLater(t, unixListener, err)} {
		l, err := sock.AttachListener(s)
		if err != nil {
			t.Fatal(err)
		}
		client := netDial(t, l.Addr())
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		d := l.(interface{ SetDeadline(time.Time) error })
		d.SetDeadline(time.Unix(1, 0))
		if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: at its deadline: %v", network, err)
		}
		client.Close()
		server.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the path is gone: %v", err)
	}
}

// If Attach fails, because of the kind of socket or because there are no descriptors, the socket is unchanged.
func TestAttachFails(t *testing.T) {
	handles.NoneLeft(t, "")
	attach := map[string]func(s *sock.Socket) (any, error){
		"conn":     func(s *sock.Socket) (any, error) { return sock.Attach(s) },
		"listener": func(s *sock.Socket) (any, error) { return sock.AttachListener(s) },
		"packet":   func(s *sock.Socket) (any, error) { return sock.AttachPacketConn(s) },
	}
	refused := func(t *testing.T, way string, s *sock.Socket, cause error) {
		t.Helper()
		h := s.Handle()
		c, err := attach[way](s)
		if wantError(t, err, "attach", h, cause); err == nil {
			c.(io.Closer).Close()
			return
		}
		if s.Handle() != h || blocking(t, h) {
			t.Errorf("%s: the socket has changed", way)
		}
	}
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		wrong := []string{"listener", "packet"}
		if !k.stream {
			wrong = wrong[:1]
		}
		for _, way := range wrong {
			refused(t, way, b, nil)
		}
		restore := exhaust(t, 0)
		refused(t, "conn", b, unix.EMFILE)
		restore()
		restore = exhaust(t, 1) // fails in package net
		refused(t, "conn", b, unix.EMFILE)
		restore()
		send(t, a, "still here")
		wantReceive(t, b, 64, "still here")
	})
	l := listen(t, sock.Loopback)
	refused(t, "conn", l, nil)
	refused(t, "packet", l, nil)
	connect(t, l.LocalAddr())
	accept(t, l)
	for way := range attach {
		c, err := attach[way](new(sock.Socket))
		wantError(t, err, "attach", none, net.ErrClosed)
		if err == nil {
			c.(io.Closer).Close()
		}
	}
}

// Of a concurrent Attach and Close, exactly one succeeds.
func TestConcurrentAttachClose(t *testing.T) {
	handles.NoneLeft(t, "")
	for i := range 200 {
		_, b := unixPair(t, false)
		closed := make(chan error)
		go func() {
			for range i % 20 {
				runtime.Gosched()
			}
			closed <- b.Close()
		}()
		c, err := sock.Attach(b)
		closeErr := <-closed
		if (err == nil) == (closeErr == nil) {
			t.Fatalf("Attach: %v, Close: %v", err, closeErr)
		}
		for _, err := range []error{err, closeErr} {
			if err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if err == nil {
			c.Close()
		}
	}
}

// Attach ends the registration of the socket, like Close.
func TestAttachRegistered(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		p, err := socknotify.New[netip.AddrPort](socknotify.WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		a, b := tcpOn(t, sock.Loopback)
		regs := []socknotify.Registration[netip.AddrPort]{
			socknotify.Enable(b, b.LocalAddr(), socknotify.EventIn, socknotify.TriggerLevel),
		}
		if p.Process(regs, nil, 0); regs[0].Result != nil || p.Stats().Registrations != 1 {
			t.Fatal(regs[0].Result)
		}
		c := attach(t, b)
		if n := p.Stats().Registrations; n != 0 {
			t.Errorf("%s: %d registrations", backend, n)
		}
		send(t, a, "data") // must not be reported by the port
		if n, err := p.Process(nil, make([]socknotify.Notification[netip.AddrPort], 1), 0); n != 0 || err != socknotify.ErrTimeout {
			t.Errorf("%s: notified: %d, %v", backend, n, err)
		}
		if n, err := c.Read(make([]byte, 8)); n != 4 || err != nil {
			t.Errorf("%s: %d, %v", backend, n, err)
		}
	})
}
