package socknotify

import (
	"testing"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A socket knows that it is drained from before its latest notification. That says nothing about what the
// notification was for (X5, T4).
func TestFastEnableFromBeforeNotification(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		do(t, p, Enable(x, "x", EventIn, oneShot))
		drain(t, x)
		send(t, y)
		for range 3 {
			if nt := next(t, p); nt.Events != EventIn {
				t.Fatalf("got %v", nt.Events)
			}
			do(t, p, Enable(x, "x", EventIn, oneShot))
		}
	})
}

// A report has been taken from the kernel when the socket is drained, and is delivered after: the turn has
// begun by then, and in it only later calls can drain the socket.
func TestFastEnableBetweenReportAndDelivery(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, Enable(x, "x", EventIn, oneShot))
		send(t, y)
		h.During(func() {
			drain(t, x)
			send(t, y)
		})
		next(t, p)
		do(t, p, Enable(x, "x", EventIn, oneShot))
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

// Another goroutine enables a registration and is notified between the two reads of a fast enable.
// The word is then what it was, and the socket is not drained any more.
func TestFastEnableOvertaken(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		do(t, p, Enable(x, "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		drain(t, x)
		s, fd := p.port.Table.Lookup(uint32(x.Handle())), fdstate.Of(x.SyscallConn())
		word := s.Word.Load()
		if !fd.Drained(port.Directions(port.EventIn)) {
			t.Fatal("not drained")
		}
		do(t, p, Enable(x, "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		if p.port.Core.OwnEdges && s.Word.Load() != word {
			t.Fatal("the word has changed, so this test is for nothing")
		}
		r := Enable(x, "x", EventIn, oneShot)
		if p.fastEnable(nil, &r) {
			t.Fatal("enabled without a system call while something is unread")
		}
		if !p.port.Core.OwnEdges {
			return
		}
		// The first poll is over, and found the socket drained.
		r.Drained = true
		if !p.fastEnable(nil, &r) {
			t.Fatal("not enabled")
		}
		p.port.Recheck(s, uint32(x.Handle()), port.WEnabled)
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

// A TCP receive that is short of its buffer has drained the socket, unless the report says that something
// may have cut it short. A receive on anything else has not.
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
		onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
			if !p.port.Core.OwnEdges {
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
			eventually(t, "a connection", func() bool { x, err = l.Accept(); return err == nil })
			defer x.Close()
			do(t, p, Enable(x, "x", EventIn, oneShot))
			send(t, y)
			h.After = func(ready []backend.Ready) { ready[0].Mask = c.mask }
			next(t, p)
			h.After = nil
			var b [64]byte
			if n, err := x.Recv(b[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			before := p.Stats().FastEnables
			do(t, p, Enable(x, "x", EventIn, oneShot))
			if got := p.Stats().FastEnables > before; got != c.want {
				t.Errorf("after a report of %#x: saved %t", c.mask, got)
			}
		})
	}
}
