package port

import (
	"context"
	"fmt"
	"runtime/trace"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// DequeueIn dequeues, and waits for the first notification. The entries of the call have been
// processed.
func (p *Port) DequeueIn(
	w *Call, ctx context.Context, out Entries, timeout time.Duration,
) (n int, err error) {
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

// wait blocks until something can be dequeued, the port is closed, the context is done or the
// timeout has passed.
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

// A call that waits outside blocks in code of the caller rather than in this package: a thread of a
// C program, which would otherwise hold a goroutine that is locked to it. It is a leader or a
// follower like any other call (see waiters), with two differences. A leader waits for Descriptor
// to become readable, rather than in the backend's Park. And a call is woken by its alert, which
// the caller waits for too. A follower is sent its token first, so PollOutside finds it.
//
// An alert may come late, or to a caller that has been woken for another reason. PollOutside then
// finds nothing, and the caller waits again.

// Descriptor returns a descriptor that poll(2) reports readable as long as the backend has reports,
// or -1 if the backend has none. Calls cannot wait outside without one.
func (p *Port) Descriptor() int {
	if d, ok := p.Core.Poller.(interface{ Descriptor() int }); ok {
		return d.Descriptor()
	}
	return -1
}

// PollOutside polls for a call that waits outside. It is called first, and then each time that the
// caller was woken. If it finds nothing and returns no error, the caller must wait for the alert,
// and, if lead is true, for Descriptor to become readable. Otherwise the call no longer waits, and
// End may follow. over makes it return ErrTimeout rather than wait again.
//
// alert must not block, and must not call the port. It may be called after the call has ended.
func (p *Port) PollOutside(
	w *Call, out Entries, alert func(), over bool,
) (n int, lead bool, err error) {
	k, v := &p.Waiters, &w.waiter
	if v.alert != nil { // it has waited
		select {
		case <-v.wake:
			v.woken = true
		default:
		}
		k.wasChosen(v)
		n = p.dequeueAlone(w, out)
		switch {
		case n > 0:
		case p.Core.Closed.Load():
			err = ErrClosed
		case over:
			err = ErrTimeout
		}
		k.leave(v, n > 0 || err != nil)
		v.alert = nil
		if n > 0 || err != nil {
			return n, false, err
		}
	}
	v.alert = alert
	lead, open := k.add(v)
	if !open {
		v.alert = nil
		return 0, false, ErrClosed
	}
	k.wasChosen(v)
	if n = p.dequeue(w, out); n > 0 {
		k.leave(v, true)
		v.alert = nil
	}
	return n, lead, nil
}

// Blocked re-arms an edge registration of a raw handle on a backend without edges, because a
// receive or a send on it would have blocked. A sock.Socket does this by itself.
func (p *Port) Blocked(handle uintptr, recv bool) {
	if !p.Core.Edges {
		d := fdstate.Send
		if recv {
			d = fdstate.Recv
		}
		p.sockBlocked(handle, d)
	}
}

// Closing ends the registration of a raw handle that is about to be closed (G9). A sock.Socket does
// this by itself.
func (p *Port) Closing(handle uintptr) { p.sockClosing(nil, handle) }

// Replaced ends the registration and the operations of a sock.Socket, given by its SyscallConn, whose
// descriptor is about to be another socket.
func (p *Port) Replaced(c syscall.RawConn, handle uintptr) {
	if t, ok := c.(*fdstate.FD); ok {
		p.sockClosing(t, handle)
	}
}
