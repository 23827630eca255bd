package port_test

import (
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// An accept that would block for good, of a listener that the system reports all the time as one that was shut down,
// ends accepting: on a kernel without edges the port would ask and accept by turns, without end (E8, X3).
func TestAcceptOfListenerShutDown(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := p.Accept(l, "l", 1); err != nil {
			t.Fatal(err)
		}
		c, err := sock.New(sock.TCP4)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		// The report is of a connection that is gone when the port accepts.
		taken := false
		h.After = func([]backend.Ready) {
			if s, err := l.Accept(); err == nil {
				s.Close()
				taken = true
			}
		}
		h.PolledOne = func(uintptr) backend.Mask { return backend.In | backend.Out }
		if port.Of(p).Core.Edges {
			await.Until(t, "a report", func() bool {
				if n, _ := p.Process(nil, make([]Notification[string], 1), 0); n != 0 {
					t.Fatal("an edge will follow")
				}
				return taken
			})
			return
		}
		nt := porttest.Next(t, p)
		if s, err := nt.Accepted(); nt.Events != EventErr || s != nil || err == nil || !taken {
			t.Fatalf("%+v, %v", nt, err)
		}
	})
}
