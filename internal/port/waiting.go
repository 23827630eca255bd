package port

import (
	"context"
	"fmt"
	"runtime/trace"
	"time"
)

// DequeueIn dequeues, and waits for the first notification. The entries of the call have been processed.
func (p *Port) DequeueIn(w *Call, ctx context.Context, out Entries, timeout time.Duration) (n int, err error) {
	switch {
	case out.Len() == 0:
		p.wakeForQueue()
	case ctx.Err() != nil:
		p.wakeForQueue()
		err = context.Cause(ctx)
	case timeout == 0:
		if n = p.dequeueAlone(w, out); n == 0 {
			err = ErrTimeout
		}
	default:
		if n = p.dequeue(w, out); n == 0 {
			n, err = p.wait(w, ctx, out, timeout)
		}
	}
	return n, err
}

// forever is a timeout that is too long for a deadline: more than a century.
const forever = time.Duration(1) << 62

// Names in an execution trace (runtime/trace), in the task of the call's context.
const (
	regionWait = "socknotify.wait"  // a region in which a call waits
	logBatch   = "socknotify.batch" // a log entry with the number of notifications and of entries
)

func Traced(ctx context.Context, n, room int) {
	if n > 0 && trace.IsEnabled() {
		trace.Logf(ctx, logBatch, "%d of %d", n, room)
	}
}

// wait blocks until something can be dequeued, the port is closed, the context is done or the timeout has passed.
func (p *Port) wait(w *Call, ctx context.Context, out Entries, timeout time.Duration) (int, error) {
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, regionWait).End()
	}
	k := &p.Waiters
	var until time.Time
	if timeout > 0 && timeout < forever {
		until = time.Now().Add(timeout)
	}
	for {
		lead, open := k.add(&w.waiter)
		if !open {
			return 0, ErrClosed
		}
		n := 0
		var err error
		if lead {
			if n, err = p.lead(w, ctx, out, until); err != nil {
				err = fmt.Errorf("socknotify: wait: %w", err)
			}
		} else {
			n = p.follow(w, ctx, out, until)
		}
		if n == 0 {
			k.wasChosen(&w.waiter)
			n = p.dequeueAlone(w, out)
		}
		if n == 0 && err == nil {
			switch {
			case p.Core.Closed.Load():
				err = ErrClosed
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case !until.IsZero() && !time.Now().Before(until):
				err = ErrTimeout
			}
		}
		k.leave(&w.waiter, n > 0 || err != nil)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// lead blocks in the backend, which polls once more before it blocks.
func (p *Port) lead(w *Call, ctx context.Context, out Entries, until time.Time) (int, error) {
	if ctx.Done() != nil {
		// Wake must not be called once another call leads, so the lock is held for it.
		stop := context.AfterFunc(ctx, func() {
			k := &p.Waiters
			k.Enter()
			defer k.Leave(0)
			if k.leader.Load() == &w.waiter {
				p.Core.Poller.Wake()
			}
		})
		defer stop()
	}
	if w.pollOnce == nil {
		w.pollOnce = func() bool {
			w.found = p.dequeue(w, w.out)
			return w.found > 0
		}
	}
	w.out, w.found = out, 0
	err := p.Core.Poller.Park(until, w.pollOnce)
	w.out = Entries{}
	return w.found, err
}

// follow blocks on the call's channel.
func (p *Port) follow(w *Call, ctx context.Context, out Entries, until time.Time) int {
	if p.Waiters.queue.any() || p.rechecks.Load() != 0 {
		p.Waiters.wasChosen(&w.waiter)
		if n := p.dequeue(w, out); n > 0 {
			return n
		}
	}
	k, done := &w.waiter, ctx.Done()
	if until.IsZero() {
		if done == nil { // a select costs twice as much
			<-k.wake
			k.woken = true
			return 0
		}
		select {
		case <-k.wake:
			k.woken = true
		case <-done:
		}
		return 0
	}
	if k.timer == nil {
		k.timer = time.NewTimer(time.Until(until))
	} else {
		k.timer.Reset(time.Until(until))
	}
	select {
	case <-k.wake:
		k.woken = true
	case <-k.timer.C:
	case <-done:
	}
	k.timer.Stop()
	return 0
}
