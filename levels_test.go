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

// A call that has waited alone returns with a persistent level and leaves it to the next call to poll it again, by when it may
// be drained. If another call waits, that is notified of the level too (T1).
func TestLevelIsPolledForOtherWaiters(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: persistent})
		none(t, p)
		var polls atomic.Int64
		h.Before = func(changes []backend.Change) { polls.Add(int64(len(changes))) }
		for _, calls := range []int{1, 2} {
			polls.Store(0)
			found := make(chan Events, calls)
			for range calls {
				go func() {
					var out [1]Notification[string]
					p.Process(nil, out[:], -1)
					found <- out[0].Events
				}()
			}
			eventually(t, "the calls wait", func() bool { return p.Stats().Waiting == calls })
			send(t, y)
			for range calls {
				if e := <-found; e != EventIn {
					t.Fatalf("%d calls: got %v", calls, e)
				}
			}
			if n := polls.Load(); calls == 1 && n > 0 {
				t.Errorf("a call that waited alone polled the level %d times", n)
			}
			drain(t, x)
			none(t, p)
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
