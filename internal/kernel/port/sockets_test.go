package port_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// A harvester that came too late began a turn, in vain: it must not take from the one that delivered that
// the end of the stream was in its report, or a short receive counts as drained and the end is never reported.
func TestConcurrentEnableDuringFastEnable(t *testing.T) {
	if wine.HidesEnd.Here() {
		t.Skip(wine.HidesEnd)
	}
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		l := porttest.Listener(t)
		c, err := net.Dial("tcp", l.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var x *sock.Socket
		await.Until(t, "a connection", func() bool { x, err = l.Accept(); return err == nil })
		defer x.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.(*net.TCPConn).CloseWrite()
		porttest.WaitForEnd(t, p, x)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Next(t, p)
		fdstate.Of(x.SyscallConn()).Advance(false, false)
		var b [64]byte
		if n, err := x.Recv(b[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Next(t, p)
	})
}

// An error ends an edge on a kernel without edges like anything else: draining the socket goes on (T2).
func TestEdgeAfterError(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		udp := func(at netip.AddrPort) *sock.Socket {
			s, err := sock.New(sock.UDP4)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			if err := s.Bind(at); err != nil {
				t.Fatal(err)
			}
			return s
		}
		x, y := udp(sock.Loopback), udp(sock.Loopback)
		at := y.LocalAddr()
		if err := x.Connect(at); err != nil {
			t.Fatal(err)
		}
		y.Close()
		porttest.Do(t, p, Enable(x, "x", EventIn, TriggerEdge))
		x.Send([]byte("to no one"))
		if nt := porttest.Next(t, p); !nt.Events.Has(EventErr) {
			t.Fatalf("got %v", nt.Events)
		}
		var b [16]byte
		for {
			if _, err := x.Recv(b[:]); err == sock.ErrWouldBlock {
				break
			}
		}
		if err := udp(at).SendTo([]byte("x"), x.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

// Accept of what does not listen leaves no key, and no count, behind.
func TestAcceptOfNoListener(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, _ := porttest.Pair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Do(t, p, Remove[string](x))
		porttest.Next(t, p)
		var e *OpError
		if err := p.Accept(x, "x", 1); !errors.As(err, &e) || e.Op != OpEnable || e.Kind != ErrInvalid ||
			err.Error() != fmt.Sprintf("socknotify: accept socket %d: invalid argument: the socket does not listen", x.Handle()) {
			t.Fatal(err)
		}
		if reg := port.Of(p).Table.Lookup(uint32(x.Handle())).Reg.Load(); reg != nil {
			t.Errorf("key %q is kept", port.KeyOf[string](reg))
		}
		x.Close()
		if n := p.Stats().Registrations; n != 0 {
			t.Errorf("%d registrations", n)
		}
	})
}

// Close ends the registration at once, also while a call uses the socket (G9).
func TestCloseOfSocketInUse(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.Persistent))
		fdstate.Of(x.SyscallConn()).Use() // as a SendFile under way does
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		porttest.Send(t, y)
		porttest.None(t, p)
		if n := p.Stats().Registrations; n != 0 {
			t.Errorf("%d registrations", n)
		}
		fdstate.Of(x.SyscallConn()).Done()
	})
}

// A listener is closed while a call is about to accept from it: that is no failure to report.
func TestCloseOfListenerInUse(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		l := porttest.Listener(t)
		if err := p.Accept(l, "l", 4); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", l.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h.During(func() {
			fdstate.Of(l.SyscallConn()).Use()
			l.Close()
		})
		var out [4]Notification[string]
		if n, err := p.Process(nil, out[:], 50*time.Millisecond); n != 0 || err != ErrTimeout {
			t.Errorf("Wait = %d, %v: %+v", n, err, out[0])
		}
		fdstate.Of(l.SyscallConn()).Done()
	})
}

// A condition that stands though a receive would block is reported now and then, and does not make the port spin
// with its handler (E8).
func TestPersistentConditionAfterWouldBlock(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y, err := sock.UnixPair(true)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("no Unix datagrams")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		defer y.Close()
		porttest.Do(t, p, Enable(x, "x", EventIn, TriggerEdge))
		if err := x.Shutdown(sock.ShutRead); err != nil {
			t.Fatal(err)
		}
		var out [1]Notification[string]
		reported := 0
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
			if n, _ := p.Process(nil, out[:], 20*time.Millisecond); n > 0 {
				reported++
				drainSome(x)
			}
		}
		if reported > 5 {
			t.Errorf("reported %d times in 200 ms", reported)
		}
	})
}

// drainSome receives to would-block, or a few times: NetBSD has a Unix datagram socket that is shut for receiving return
// nothing forever.
func drainSome(x *sock.Socket) {
	var b [64]byte
	for range 64 {
		if _, err := x.Recv(b[:]); err != nil {
			return
		}
	}
}
