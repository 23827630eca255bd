package contend

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// A portMode is how sockets are registered with a port.
type portMode struct {
	name                   string
	trigger                socknotify.Trigger
	oneShot, drained, edge bool
}

var portModes = []portMode{
	{name: "oneshot+drained", trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot, oneShot: true, drained: true},
	{name: "oneshot", trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot, oneShot: true},
	{name: "level", trigger: socknotify.TriggerLevel},
	{name: "edge", trigger: socknotify.TriggerEdge, edge: true},
}

// lateness is how long a waiter sleeps at the end, when others have all the bytes.
const lateness = 20 * time.Millisecond

// portCore is the event core of a port, with one waiter or more.
func portCore(backend string, m portMode) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		t, err := newTokens(p)
		if err != nil {
			return param.Outcome{}, err
		}
		defer t.close()
		base := t.base()
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return param.Outcome{}, err
		}
		defer port.Close()
		err = t.each(func(fd, k int) error {
			regs := []socknotify.Registration[int]{
				socknotify.Enable(uintptr(fd), k, socknotify.EventIn, m.trigger),
			}
			_, err := port.Process(regs, nil, 0)
			return errors.Join(err, regs[0].Result)
		})
		if err != nil {
			return param.Outcome{}, err
		}
		t.begin()

		var ops atomic.Int64
		var failed atomic.Pointer[error]
		var running sync.WaitGroup
		w := startWatch()
		until := time.Now().Add(p.Duration())
		for range max(p.Waiters, 1) {
			running.Go(func() {
				n, err := portWaiter(port, t, m, p.Batch, until)
				ops.Add(n)
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		running.Wait()
		o := w.stop(ops.Load())
		o.Base = base
		if err := failed.Load(); err != nil {
			return o, *err
		}
		return o, nil
	}
}

// portWaiter handles notifications until the time is over. One-shot registrations are enabled in the
// call that dequeues, as the package recommends.
func portWaiter(port *socknotify.Port[int], t *tokens, m portMode, batch int, until time.Time) (ops int64, err error) {
	var buf [8]byte
	out := make([]socknotify.Notification[int], batch)
	regs := make([]socknotify.Registration[int], 0, batch)
	for turns := 1; ; turns++ {
		n, err := port.Process(regs, out, lateness)
		if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
			return ops, err
		}
		for i := range regs {
			if regs[i].Result != nil {
				return ops, regs[i].Result
			}
		}
		regs = regs[:0]
		for i := range out[:n] {
			k := out[i].Key
			ops += t.pass(k, &buf)
			if m.oneShot {
				r := socknotify.Enable(uintptr(t.out[t.at(k)]), k, socknotify.EventIn, m.trigger)
				r.Drained = m.drained
				regs = append(regs, r)
			}
		}
		if turns%16 == 0 && time.Now().After(until) {
			return ops, nil
		}
	}
}
