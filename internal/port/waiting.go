package port

import (
	"context"
	"fmt"
	"runtime/trace"
	"sync/atomic"
	"time"
)

// waiters are the calls that block because they found nothing to dequeue. Once the port has had a socket, one of them, the
// leader, blocks in the backend's Park. The others, the followers, block on a channel, each with its own timeout and context.
//
// Why no wake-up is lost. Work is either in the queue or in the kernel.
//
// A port that has never had a socket has no leader, and only its queue holds work. The first registration sets
// Core.Watching before it reaches the kernel, and then wakes a waiter, which becomes the leader.
//
// Queue. A producer first queues and then looks for waiters; a waiter is first added to the list and then checks the
// queue. So either the producer finds the waiter, or the waiter finds the entry. A producer wakes no one while a chosen
// waiter has yet to poll (Chosen). That waiter clears Chosen before it polls (wasChosen), so its poll finds every entry
// that was queued before a producer saw Chosen set.
//
// Kernel. The leader is added to the list, then opens the backend's waker and polls once more (Park). While any call
// waits there is a leader, or a call that is awake and will provide one: a leader that leaves chooses a successor under
// the lock (Go), which becomes the leader as soon as it finds nothing to do. A waiter that is chosen after it has polled,
// and does not wait again, chooses another in its place (Go again). A poll that fills its slice may leave
// reports in the kernel, and these wake no one. So the polling call chooses another waiter; the leader does so when it
// leaves.
//
// The call that chooses a follower removes it from the list and sends a token on its channel. The follower receives the token
// before it is added again, so there is never more than one token and the sender never blocks.
type waiters struct {
	// Turnstile is the lock. Its count is the number of calls on the list, which producers read without the lock.
	Turnstile
	Chosen atomic.Pointer[Call] // chosen to be woken, and has not polled yet; set under the lock, cleared by the call itself
	Leader atomic.Pointer[Call] // on the list; set under the lock

	first   *Call // the latest to be added
	wakeups uint64
	Closed  bool
}

// forever is a timeout that is too long for a deadline: more than a century.
const forever = time.Duration(1) << 62

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
		lead, open := k.Add(p.Core, w)
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
			k.wasChosen(w)
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
		k.Go(w, p, n > 0 || err != nil)
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
			if k.Leader.Load() == w {
				p.Core.Poller.Wake()
			}
		})
		defer stop()
	}
	w.out, w.found = out, 0
	err := p.Core.Poller.Park(until, w.pollOnce)
	w.out = Entries{}
	return w.found, err
}

// follow blocks on the call's channel.
func (p *Port) follow(w *Call, ctx context.Context, out Entries, until time.Time) int {
	if p.queue.any() || p.rechecks.Load() != 0 {
		p.Waiters.wasChosen(w)
		if n := p.Dequeue(w, out); n > 0 {
			return n
		}
	}
	done := ctx.Done()
	if until.IsZero() {
		if done == nil { // a select costs twice as much
			<-w.wake
			w.woken = true
			return 0
		}
		select {
		case <-w.wake:
			w.woken = true
		case <-done:
		}
		return 0
	}
	if w.timer == nil {
		w.timer = time.NewTimer(time.Until(until))
	} else {
		w.timer.Reset(time.Until(until))
	}
	select {
	case <-w.wake:
		w.woken = true
	case <-w.timer.C:
	case <-done:
	}
	w.timer.Stop()
	return 0
}

// Add adds a call to the list. lead reports whether it is the leader; open is false if the port is closed.
func (k *waiters) Add(c *Core, w *Call) (lead, open bool) {
	k.Enter()
	if k.Closed {
		k.Leave(0)
		return false, false
	}
	w.listed, w.woken, w.prev, w.after = true, false, nil, k.first
	if k.first != nil {
		k.first.prev = w
	}
	k.first = w
	if k.Leader.Load() == nil && c.Watching.Load() {
		k.Leader.Store(w)
		lead = true
	}
	k.Leave(+1)
	return lead, true
}

// remove removes a call from the list. The lock is held; the caller changes the count.
func (k *waiters) remove(w *Call) {
	if w.prev != nil {
		w.prev.after = w.after
	} else {
		k.first = w.after
	}
	if w.after != nil {
		w.after.prev = w.prev
	}
	w.listed, w.prev, w.after = false, nil, nil
}

// Go removes a call that is awake from the list. If the call does not wait again (out), the others must keep a leader,
// and work that the call was chosen for must go to another.
func (k *waiters) Go(w *Call, p *Port, out bool) {
	if w.woken && !(out && k.needsWaiter(p)) {
		return // it is off the list and has polled, and no other call is needed
	}
	k.Enter()
	asleep := 0
	owed := false
	if w.listed {
		k.remove(w)
		asleep--
	} else {
		owed = !w.woken // it was chosen after it had woken for another reason; its token is on the way
	}
	if k.Leader.Load() == w {
		k.Leader.Store(nil)
	}
	var next *Call
	if chosen := k.wasChosen(w); out && (chosen || k.needsWaiter(p)) {
		next = k.choose(p.Core, nil)
	}
	k.unlockAndWake(next, asleep)
	if owed {
		<-w.wake
	}
}

// needsWaiter reports whether another call must wake when one goes. The lock need not be held: if there is a leader now,
// that leader chooses its successor when it goes.
func (k *waiters) needsWaiter(p *Port) bool {
	return k.Leader.Load() == nil && p.Core.Watching.Load() || p.queue.any()
}

// others reports whether calls other than w wait. Another call may be counted although it has been chosen and w is not.
func (k *waiters) others(w *Call) bool {
	n := k.Count()
	return n > 1 || n == 1 && k.Leader.Load() != w
}

// wasChosen reports whether w was chosen to be woken, and clears the mark. w must poll afterwards; that poll handles the
// work that it was woken for, so no other call need be woken for it (P3).
func (k *waiters) wasChosen(w *Call) (chosen bool) {
	if k.Chosen.Load() != w {
		return false
	}
	k.Chosen.Store(nil)
	return true
}

// appointLeader makes a call that waits since before the first registration the leader.
func (k *waiters) appointLeader(c *Core) {
	k.Enter()
	var next *Call
	if k.Leader.Load() == nil {
		next = k.choose(c, nil)
	}
	k.unlockAndWake(next, 0)
}

// WakeOne wakes one waiter other than self, unless there is none or one that was chosen has yet to poll.
func (k *waiters) WakeOne(c *Core, self *Call) {
	if k.Count() == 0 || k.Chosen.Load() != nil {
		return
	}
	k.Enter()
	k.unlockAndWake(k.choose(c, self), 0)
}

// choose marks a call other than self to be woken: the follower that was added last, because its memory is most likely in
// the cache, or else the leader. A follower is removed from the list and returned, for unlockAndWake; the leader is woken
// here, while the lock keeps it the leader and so its backend open.
func (k *waiters) choose(c *Core, self *Call) *Call {
	if k.Closed || k.Chosen.Load() != nil {
		return nil
	}
	leader := k.Leader.Load()
	w := k.first
	for w != nil && (w == self || w == leader) {
		w = w.after
	}
	if w == nil && leader != self {
		w = leader
	}
	if w == nil {
		return nil
	}
	k.Chosen.Store(w)
	k.wakeups++
	if w == leader {
		w.rouse(c)
		return nil
	}
	k.remove(w)
	return w
}

// unlockAndWake unlocks, and then wakes the follower that choose has returned. count is what else changes the count.
func (k *waiters) unlockAndWake(chosen *Call, count int) {
	if chosen == nil {
		k.Leave(count)
		return
	}
	k.Leave(count - 1)
	chosen.release()
}

// woken returns the number of calls that were chosen.
func (k *waiters) woken() uint64 {
	k.Enter()
	defer k.Leave(0)
	return k.wakeups
}

// close wakes every waiter. No call waits from then on.
func (k *waiters) close(c *Core) {
	k.Enter()
	asleep := 0
	if !k.Closed {
		k.Closed = true
		leader := k.Leader.Load()
		for w := k.first; w != nil; {
			after := w.after
			if w == leader {
				w.rouse(c)
			} else {
				k.remove(w)
				asleep--
				w.release()
			}
			w = after
		}
	}
	k.Leave(asleep)
}
