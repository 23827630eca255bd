package socknotify

import (
	"sync/atomic"
	"testing"

	"github.com/socknotify/socknotify/internal/backend"
)

// The level of a drained socket is not polled again: what comes later is a report of its own (X5). One that was not
// drained is polled with every dequeue, and notified (T1).
func TestDrainedLevelMakesNoSystemCall(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: persistent})
		polls := 0
		h.Before = func(changes []backend.Change) { polls += len(changes) }
		for range 3 {
			send(t, y)
			for range 3 {
				if nt := next(t, p); nt.Events != EventIn {
					t.Fatalf("got %v", nt.Events)
				}
			}
			if polls == 0 {
				t.Fatal("a socket that was not drained was not polled again")
			}
			drain(t, x)
			polls = 0
			none(t, p)
			if p.port.Core.OwnEdges && polls > 0 {
				t.Fatalf("a drained socket was polled %d times", polls)
			}
		}
	})
}

// An enable that fails leaves the level as it was, even if the kernel reported it in between: that report was of no
// registration any more, or not yet, and the drained socket knows nothing of it.
func TestRefusedEnableOfDrainedLevel(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		level := Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: persistent}
		do(t, p, level)
		send(t, y)
		next(t, p)
		drain(t, x)
		none(t, p)
		var refuse atomic.Bool
		h.Refuse = func(c *backend.Change) error {
			if !refuse.Swap(false) {
				return nil
			}
			send(t, y)
			none(t, p) // the report is dropped
			return refuseAll(c)
		}
		refuse.Store(true)
		regs := []Registration[string]{level}
		regs[0].Filter |= EventHangup
		if p.Process(regs, nil, 0); regs[0].Result == nil {
			t.Fatal("not refused")
		}
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}
