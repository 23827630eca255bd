package port_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// What the kernel refuses leaves things as they were.
func TestRefusedChange(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		h.Refuse = refuseAll
		regs := []Registration[string]{porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot)}
		p.Process(regs, nil, 0)
		if !errors.Is(regs[0].Result, syscall.ENOSPC) {
			t.Fatalf("enable: %v", regs[0].Result)
		}
		if n := p.Stats().Registrations; n != 0 {
			t.Fatalf("%d registrations", n)
		}
		h.Refuse = nil
		porttest.Do(t, p, regs[0])
		h.Refuse = refuseAll
		for _, r := range []Registration[string]{
			porttest.EnableHandle(x.Handle(), "k", EventOut, porttest.OneShot), porttest.DisableHandle[string](x.Handle()), porttest.RemoveHandle[string](x.Handle()),
		} {
			regs[0] = r
			p.Process(regs, nil, 0)
			if !errors.Is(regs[0].Result, syscall.ENOSPC) {
				t.Fatalf("%v: %v", r.Op, regs[0].Result)
			}
		}
		h.Refuse = nil
		porttest.Send(t, y)
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v; want IN of the registration that was not changed", nt.Events)
		}
		porttest.Do(t, p, porttest.RemoveHandle[string](x.Handle()))
		if nt := porttest.Next(t, p); nt.Events != EventRemove {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

func refuseAll(*backend.Change) error { return syscall.ENOSPC }

// A recheck that the kernel refused is made again: the level still holds (T1).
func TestRefusedPoll(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.Persistent))
		porttest.Send(t, y)
		porttest.Next(t, p)
		h.Refuse = refuseAll
		porttest.None(t, p)
		h.Refuse = nil
		porttest.Next(t, p)
	})
}

// A waiter is notified of what came during a change that the kernel then refused.
func TestRefusedChangeWakes(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		var refuse atomic.Bool
		h.Refuse = func(c *backend.Change) error {
			if !refuse.Swap(false) {
				return nil
			}
			porttest.Send(t, y)
			if port.Of(p).Core.OwnEdges {
				await.Until(t, "the report is dropped", func() bool { return p.Stats().Stale > 0 })
			}
			return refuseAll(c)
		}
		got := make(chan Notification[string], 1)
		go func() { got <- porttest.Next(t, p) }()
		porttest.Waiting(t, p, 1)
		refuse.Store(true)
		regs := []Registration[string]{porttest.EnableHandle(x.Handle(), "k", EventIn|EventOut, porttest.OneShot)}
		if p.Process(regs, nil, 0); regs[0].Result == nil {
			t.Fatal("not refused")
		}
		if nt := <-got; nt.Key != "k" || nt.Events != EventIn {
			t.Errorf("%+v", nt)
		}
	})
}
