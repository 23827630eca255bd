package port_test

import (
	"sync/atomic"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// The level of a drained socket is not polled again: what comes later is a report of its own (X5). One that was not
// drained is polled with every dequeue, and notified (T1).
func TestDrainedLevelMakesNoSystemCall(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: porttest.Persistent})
		polls := 0
		h.Before = func(changes []backend.Change) { polls += len(changes) }
		for range 3 {
			porttest.Send(t, y)
			for range 3 {
				if nt := porttest.Next(t, p); nt.Events != EventIn {
					t.Fatalf("got %v", nt.Events)
				}
			}
			if polls == 0 {
				t.Fatal("a socket that was not drained was not polled again")
			}
			porttest.Drain(t, x)
			polls = 0
			porttest.None(t, p)
			if port.Of(p).Core.OwnEdges && polls > 0 {
				t.Fatalf("a drained socket was polled %d times", polls)
			}
		}
	})
}

// A call that has waited alone returns with a persistent level and leaves it to the next call to poll it again, by when it may
// be drained. If another call waits, that is notified of the level too (T1).
func TestLevelIsPolledForOtherWaiters(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: porttest.Persistent})
		porttest.None(t, p)
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
			await.Until(t, "the calls wait", func() bool { return p.Stats().Waiting == calls })
			porttest.Send(t, y)
			for range calls {
				if e := <-found; e != EventIn {
					t.Fatalf("%d calls: got %v", calls, e)
				}
			}
			if n := polls.Load(); calls == 1 && n > 0 {
				t.Errorf("a call that waited alone polled the level %d times", n)
			}
			porttest.Drain(t, x)
			porttest.None(t, p)
		}
	})
}

// An enable that fails leaves the level as it was, even if the kernel reported it in between: that report was of no
// registration any more, or not yet, and the drained socket knows nothing of it.
func TestRefusedEnableOfDrainedLevel(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		level := Registration[string]{Conn: x, Key: "k", Filter: EventIn, Op: OpEnable, Trigger: porttest.Persistent}
		porttest.Do(t, p, level)
		porttest.Send(t, y)
		porttest.Next(t, p)
		porttest.Drain(t, x)
		porttest.None(t, p)
		var refuse atomic.Bool
		h.Refuse = func(c *backend.Change) error {
			if !refuse.Swap(false) {
				return nil
			}
			porttest.Send(t, y)
			porttest.None(t, p) // the report is dropped
			return refuseAll(c)
		}
		refuse.Store(true)
		regs := []Registration[string]{level}
		regs[0].Filter |= EventHangup
		if p.Process(regs, nil, 0); regs[0].Result == nil {
			t.Fatal("not refused")
		}
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
	})
}
