package socknotify

import (
	"testing"

	"github.com/socknotify/socknotify/sock"
)

// A level is drained in all directions of its filter, or not at all (T1).
func TestLevelDrainedInOneDirection(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		for _, filter := range []Events{EventOut, EventIn | EventOut} {
			x, _ := newPair(t)
			do(t, p, Enable(x, "x", filter, persistent))
			for range 3 {
				if nt := next(t, p); nt.Events != EventOut {
					t.Fatalf("got %v", nt.Events)
				}
				drain(t, x)
			}
			do(t, p, Remove[string](x))
			if nt := next(t, p); nt.Events != EventRemove {
				t.Fatalf("got %v", nt.Events)
			}
		}
	})
}

// What is to be heard of the peer's end is not drained by sends that would block.
func TestHangupIsNotDrainedBySends(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		if err := y.Shutdown(sock.ShutWrite); err != nil {
			t.Fatal(err)
		}
		do(t, p, Enable(x, "x", EventOut|EventHangup, persistent))
		next(t, p)
		var err error
		for b := make([]byte, 1<<16); err == nil; _, err = x.Send(b) {
		}
		if err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		for range 3 {
			if nt := next(t, p); nt.Events != EventHangup {
				t.Fatalf("got %v", nt.Events)
			}
		}
	})
}

// A listener without another connection does not count as drained: what Accept leaves for the others' sake is accepted
// later, though nothing more comes (X3).
func TestAcceptGoesOnAfterItWouldBlock(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := p.Accept(l, "l", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		const clients = 5
		for range clients {
			c := newClient(t, l)
			eventually(t, "a connection", func() bool { return c.RemoteAddr().IsValid() })
		}
		for range clients {
			s, err := next(t, p).Accepted()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		none(t, p)
	})
}
