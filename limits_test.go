package socknotify

import (
	"errors"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel"
)

// What the kernel refuses leaves things as they were.
func TestRefusedChange(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		h.refuse = refuseAll
		regs := []Registration[string]{Enable(x.Handle(), "k", EventIn, oneShot)}
		p.Process(regs, nil, 0)
		if !errors.Is(regs[0].Result, syscall.ENOSPC) {
			t.Fatalf("enable: %v", regs[0].Result)
		}
		if n := p.Stats().Registrations; n != 0 {
			t.Fatalf("%d registrations", n)
		}
		h.refuse = nil
		do(t, p, regs[0])
		h.refuse = refuseAll
		for _, r := range []Registration[string]{
			Enable(x.Handle(), "k", EventOut, oneShot), Disable[string](x.Handle()), Remove[string](x.Handle()),
		} {
			regs[0] = r
			p.Process(regs, nil, 0)
			if !errors.Is(regs[0].Result, syscall.ENOSPC) {
				t.Fatalf("%v: %v", r.Op, regs[0].Result)
			}
		}
		h.refuse = nil
		send(t, y)
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v; want IN of the registration that was not changed", nt.Events)
		}
		do(t, p, Remove[string](x.Handle()))
		if nt := next(t, p); nt.Events != EventRemove {
			t.Fatalf("got %v", nt.Events)
		}
	})
}

func refuseAll(*kernel.Change) error { return syscall.ENOSPC }
