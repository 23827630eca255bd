package contend

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// A portMode says how sockets are registered with a port.
type portMode struct {
	name                   string
	trigger                socknotify.Trigger
	oneShot, drained, edge bool
}

var portModes = []portMode{
	{name: "oneshot+drained", trigger: oneShot, oneShot: true, drained: true},
	{name: "oneshot", trigger: oneShot, oneShot: true},
	{name: "level", trigger: socknotify.TriggerLevel},
	{name: "edge", trigger: socknotify.TriggerEdge, edge: true},
}

// portCore is the event core on a port, with one or more waiters.
func portCore(backend string, m portMode) run {
	return core(true, func(p Params, t *tokens) (Outcome, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return Outcome{}, err
		}
		defer port.Close()
		err = t.each(func(fd, k int) error {
			regs := []socknotify.Registration[int]{m.enable(fd, k)}
			_, err := port.Process(regs, nil, 0)
			return errors.Join(err, regs[0].Result)
		})
		if err != nil {
			return Outcome{}, err
		}
		t.begin()

		counts := make([]count, p.Waiters)
		failed := make(chan error, len(counts))
		var running sync.WaitGroup
		w := startWatch()
		for i := range counts {
			running.Go(func() { failed <- portWaiter(port, t, m, p.Batch, &counts[i]) })
		}
		select {
		case err = <-failed:
		case <-time.After(p.Duration()):
		}
		ops := int64(0)
		for i := range counts {
			ops += counts[i].Load()
		}
		o := w.stop(ops)
		port.Close() // the waiters return
		running.Wait()
		t.drain()
		o.BaseAfter = t.base(p.Waiters, p.Batch)
		for len(failed) > 0 {
			err = errors.Join(err, <-failed)
		}
		return o, err
	})
}

// enable returns a registration that enables a socket.
func (m portMode) enable(fd, k int) socknotify.Registration[int] {
	return socknotify.Registration[int]{
		Handle: uintptr(fd), Key: k, Filter: socknotify.EventIn,
		Op: socknotify.OpEnable, Trigger: m.trigger,
	}
}

// A count is the count of one waiter, on a separate cache line.
type count struct {
	atomic.Int64
	_ [120]byte
}

// portWaiter handles notifications until the port is closed. One-shot registrations are enabled in the
// call that dequeues, as the package recommends.
func portWaiter(port *socknotify.Port[int], t *tokens, m portMode, batch int, ops *count) error {
	var buf [8]byte
	out := make([]socknotify.Notification[int], batch)
	regs := make([]socknotify.Registration[int], 0, batch)
	for {
		n, err := port.Process(regs, out, -1)
		if errors.Is(err, socknotify.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range regs {
			if regs[i].Result != nil {
				return regs[i].Result
			}
		}
		regs = regs[:0]
		done := int64(0)
		for i := range out[:n] {
			k := out[i].Key
			done += t.pass(k, &buf)
			if m.oneShot {
				r := m.enable(t.out[t.at(k)], k)
				r.Drained = m.drained
				regs = append(regs, r)
			}
		}
		ops.Store(ops.Load() + done) // only this goroutine writes it
	}
}
