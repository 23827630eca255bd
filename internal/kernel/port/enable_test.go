package port_test

import (
	"testing"
	"unsafe"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// A socket knows that it is drained from before its latest notification. That says nothing about
// what the notification was for (X5, T4).
func TestFastEnableFromBeforeNotification(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Drain(t, x)
		porttest.Send(t, y)
		for range 3 {
			if nt := porttest.Next(t, p); nt.Events != EventIn {
				t.Fatalf("got %v", nt.Events)
			}
			porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		}
	})
}

// A report has been taken from the kernel when the socket is drained, and is delivered after: the
// turn has begun by then, and in it only later calls can drain the socket.
func TestFastEnableBetweenReportAndDelivery(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() {
			porttest.Drain(t, x)
			porttest.Send(t, y)
		})
		porttest.Next(t, p)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

// Another goroutine enables a registration and is notified between the two reads of a fast enable.
// The word is then what it was, and the socket is not drained any more.
func TestFastEnableOvertaken(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		porttest.Next(t, p)
		porttest.Drain(t, x)
		s, fd := port.Of(p).Table.Lookup(uint32(x.Handle())), fdstate.Of(x.SyscallConn())
		word := s.State()
		if !fd.Drained(port.Directions(port.EventIn)) {
			t.Fatal("not drained")
		}
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		porttest.Next(t, p)
		if port.Of(p).Core.OwnEdges && s.State() != word {
			t.Fatal("the word has changed, so this test is for nothing")
		}
		key := "x"
		fastEnable := func(drained bool) bool {
			return port.Of(p).FastEnable(nil, fd, x.Handle(), port.EventIn, port.Trigger(porttest.OneShot), drained,
				unsafe.Pointer(&key))
		}
		if fastEnable(false) {
			t.Fatal("enabled without a system call while something is unread")
		}
		if !port.Of(p).Core.OwnEdges {
			return
		}
		// The first poll is over, and found the socket drained.
		if !fastEnable(true) {
			t.Fatal("not enabled")
		}
		port.Of(p).Recheck(s, uint32(x.Handle()))
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

// A TCP receive that is short of its buffer has drained the socket, unless the report says that
// something may have cut it short. A receive on anything else has not.
func TestShortReceiveDrains(t *testing.T) {
	for _, c := range []struct {
		mask backend.Mask
		want bool
	}{
		{backend.In, true},
		{backend.In | backend.Out, true},
		{backend.In | backend.Urgent, false},
		{backend.In | backend.PeerClosed, false},
		{backend.In | backend.Err, false},
		{backend.In | backend.Dead | backend.PeerClosed, false},
	} {
		porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
			if !port.Of(p).Core.OwnEdges {
				return // every enable asks
			}
			l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			y, err := sock.New(sock.TCP4)
			if err != nil {
				t.Fatal(err)
			}
			defer y.Close()
			if err := y.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
			var x *sock.Socket
			await.Until(t, "a connection", func() bool { x, err = l.Accept(); return err == nil })
			defer x.Close()
			porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
			porttest.Send(t, y)
			h.After = func(ready []backend.Ready) { ready[0].Mask = c.mask }
			porttest.Next(t, p)
			h.After = nil
			var b [64]byte
			if n, err := x.Recv(b[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			before := p.Stats().FastEnables
			porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
			if got := p.Stats().FastEnables > before; got != c.want {
				t.Errorf("after a report of %#x: saved %t", c.mask, got)
			}
		})
	}
}
