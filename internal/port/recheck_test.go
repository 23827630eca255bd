package port_test

import (
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// A level is drained in all directions of its filter, or not at all (T1).
func TestLevelDrainedInOneDirection(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		for _, filter := range []Events{EventOut, EventIn | EventOut} {
			x, _ := porttest.Pair(t)
			porttest.Do(t, p, Enable(x, "x", filter, porttest.Persistent))
			for range 3 {
				if nt := porttest.Next(t, p); nt.Events != EventOut {
					t.Fatalf("got %v", nt.Events)
				}
				porttest.Drain(t, x)
			}
			porttest.Do(t, p, Remove[string](x))
			if nt := porttest.Next(t, p); nt.Events != EventRemove {
				t.Fatalf("got %v", nt.Events)
			}
		}
	})
}

// What is to be heard of the peer's end is not drained by sends that would block.
func TestHangupIsNotDrainedBySends(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		if err := y.Shutdown(sock.ShutWrite); err != nil {
			t.Fatal(err)
		}
		porttest.Do(t, p, Enable(x, "x", EventOut|EventHangup, porttest.Persistent))
		porttest.Next(t, p)
		var err error
		for b := make([]byte, 1<<16); err == nil; _, err = x.Send(b) {
		}
		if err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		for range 3 {
			if nt := porttest.Next(t, p); nt.Events != EventHangup {
				t.Fatalf("got %v", nt.Events)
			}
		}
	})
}

// A listener without another connection does not count as drained: what Accept leaves for the others' sake is accepted
// later, though nothing more comes (X3).
func TestAcceptGoesOnAfterItWouldBlock(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
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
			c := porttest.Client(t, l)
			await.Until(t, "a connection", func() bool { return c.RemoteAddr().IsValid() })
		}
		for range clients {
			s, err := porttest.Next(t, p).Accepted()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		porttest.None(t, p)
	})
}
