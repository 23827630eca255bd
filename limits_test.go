package socknotify

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/backend"
)

// What the kernel refuses leaves things as they were.
func TestRefusedChange(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		h.Refuse = refuseAll
		regs := []Registration[string]{enableHandle(x.Handle(), "k", EventIn, oneShot)}
		p.Process(regs, nil, 0)
		if !errors.Is(regs[0].Result, syscall.ENOSPC) {
			t.Fatalf("enable: %v", regs[0].Result)
		}
		if n := p.Stats().Registrations; n != 0 {
			t.Fatalf("%d registrations", n)
		}
		h.Refuse = nil
		do(t, p, regs[0])
		h.Refuse = refuseAll
		for _, r := range []Registration[string]{
			enableHandle(x.Handle(), "k", EventOut, oneShot), disableHandle[string](x.Handle()), removeHandle[string](x.Handle()),
		} {
			regs[0] = r
			p.Process(regs, nil, 0)
			if !errors.Is(regs[0].Result, syscall.ENOSPC) {
				t.Fatalf("%v: %v", r.Op, regs[0].Result)
			}
		}
		h.Refuse = nil
		send(t, y)
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v; want IN of the registration that was not changed", nt.Events)
		}
		do(t, p, removeHandle[string](x.Handle()))
		if nt := next(t, p); nt.Events != EventRemove {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

func refuseAll(*backend.Change) error { return syscall.ENOSPC }

// A recheck that the kernel refused is made again: the level still holds (T1).
func TestRefusedPoll(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "k", EventIn, persistent))
		send(t, y)
		next(t, p)
		h.Refuse = refuseAll
		none(t, p)
		h.Refuse = nil
		next(t, p)
	})
}

// A waiter is notified of what came during a change that the kernel then refused.
func TestRefusedChangeWakes(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "k", EventIn, oneShot))
		var refuse atomic.Bool
		h.Refuse = func(c *backend.Change) error {
			if !refuse.Swap(false) {
				return nil
			}
			send(t, y)
			if p.port.Core.OwnEdges {
				eventually(t, "the report is dropped", func() bool { return p.Stats().Stale > 0 })
			}
			return refuseAll(c)
		}
		got := make(chan Notification[string], 1)
		go func() { got <- next(t, p) }()
		asleep(t, p, 1)
		refuse.Store(true)
		regs := []Registration[string]{enableHandle(x.Handle(), "k", EventIn|EventOut, oneShot)}
		if p.Process(regs, nil, 0); regs[0].Result == nil {
			t.Fatal("not refused")
		}
		if nt := <-got; nt.Key != "k" || nt.Events != EventIn {
			t.Errorf("%+v", nt)
		}
	})
}
