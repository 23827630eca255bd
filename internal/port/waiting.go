package port

import (
	"context"
	"fmt"
	"runtime/trace"
	"sync/atomic"
	"time"
)

// A parking is where calls sleep that found nothing. Exactly one of the sleepers, the leader, parks in
// the kernel; the others, the followers, sleep on a channel, each with its own time-out and context.
//
// Why no wake-up is lost. Work is either in the queue or in the kernel.
//
// A port that has never had a socket has no leader, and nothing but its queue. The first registration says
// that there is a kernel to watch before it tells the kernel, and picks a sleeper, who leads then.
//
// Queue: a producer queues first and looks for sleepers then; a sleeper is listed first and looks at
// the queue then. So either the producer finds the sleeper, or the sleeper finds the entry. The
// producer leaves the sleepers alone if one has been chosen that has yet to look (waking): it clears
// waking before it looks (answer), so an entry queued before a producer saw waking set is seen by that look.
//
// Kernel: the leader is listed, then opens the kernel's wake-up and looks once more (Park). While
// anybody sleeps there is a leader, or somebody is awake who is bound to see to it: a leader that
// leaves picks a successor under the lock (depart), who leads as soon as it finds nothing to do, and a
// sleeper that is chosen after it has looked, and does not come back, passes that on (depart again).
// A harvest that filled all the backend it had may have left reports behind that wake nobody any more,
// so it picks a sleeper too; the leader's leaves that to the leader's departure.
//
// A follower that is chosen is taken off the list, and gets a token in its channel by whoever did that. It takes
// the token before it is listed again, so that there is never more than one; nobody blocks on sending one.
type waiters struct {
	// Turnstile is the lock. It counts the calls on the list, for producers who would rather not take it.
	Turnstile
	Chosen atomic.Pointer[Call] // who was chosen and has not looked yet: set under the lock, cleared by itself
	Leader atomic.Pointer[Call] // on the list; written under the lock

	first   *Call // the latest sleeper
	wakeups uint64
	Closed  bool
}

// Forever is a time-out that does not fit into deadlines; it is longer than a century.
const Forever = time.Duration(1) << 62

// wait blocks until something can be dequeued, the port is closed, the context is done or the
// time-out has passed.
func (p *Port) wait(w *Call, ctx context.Context, out Entries, timeout time.Duration) (int, error) {
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, RegionWait).End()
	}
	k := &p.Waiters
	var until time.Time
	if timeout > 0 && timeout < Forever {
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

// lead parks in the kernel, which harvests once more before it sleeps.
func (p *Port) lead(w *Call, ctx context.Context, out Entries, until time.Time) (int, error) {
	if ctx.Done() != nil {
		// The kernel may be woken only while this call leads, so the lock is taken for it.
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
	err := p.Core.Poller.Park(until, w.look)
	w.out = Entries{}
	return w.found, err
}

// follow sleeps on the call's channel.
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

// Add puts a call on the list. open is false where the port is closed.
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

// unlist takes a call off the list. The lock is held, and has yet to count it.
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

// Go takes a call off the list that is awake. If it is on its way out, the others must not be left
// without a leader, nor what it was chosen for without anybody to see to it.
func (k *waiters) Go(w *Call, p *Port, out bool) {
	if w.woken && !(out && k.needsWaiter(p)) {
		return // it is off the list, and has answered; the lock is not needed to see that nobody else is needed
	}
	k.Enter()
	asleep := 0
	owed := false
	if w.listed {
		k.remove(w)
		asleep--
	} else {
		owed = !w.woken // chosen after it had woken for another reason
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

// needed reports whether somebody else must wake up when a call goes. It need not hold the lock: a leader that is
// there now sees to its succession itself when it goes.
func (k *waiters) needsWaiter(p *Port) bool {
	return k.Leader.Load() == nil && p.Core.Watching.Load() || p.queue.any()
}

// answer is for a sleeper that is about to look: it sees to what it has been chosen for, if it has, so that it
// need not wake another for that (P3).
func (k *waiters) wasChosen(w *Call) (chosen bool) {
	if k.Chosen.Load() != w {
		return false
	}
	k.Chosen.Store(nil)
	return true
}

// appoint sees to a leader among those who went to sleep before the first socket was registered.
func (k *waiters) appointLeader(c *Core) {
	k.Enter()
	var next *Call
	if k.Leader.Load() == nil {
		next = k.choose(c, nil)
	}
	k.unlockAndWake(next, 0)
}

// WakeOne wakes one sleeper other than self, if there is one and none is on its way already.
func (k *waiters) WakeOne(c *Core, self *Call) {
	if k.Count() == 0 || k.Chosen.Load() != nil {
		return
	}
	k.Enter()
	k.unlockAndWake(k.choose(c, self), 0)
}

// pick chooses the latest follower, whose memory is the warmest, or else the leader; never self, a
// call that is on the list but awake. A follower is returned, for part. The lock is held, so the leader is still
// one, and its kernel open.
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
		c.Poller.Wake()
		return nil
	}
	k.remove(w)
	return w
}

// part leaves the lock, and then wakes a follower that was chosen. asleep is what else changes the count.
func (k *waiters) unlockAndWake(chosen *Call, asleep int) {
	if chosen == nil {
		k.Leave(asleep)
		return
	}
	k.Leave(asleep - 1)
	chosen.wake <- struct{}{}
}

// woken is how many were chosen.
func (k *waiters) woken() uint64 {
	k.Enter()
	defer k.Leave(0)
	return k.wakeups
}

// close wakes everybody and lets nobody sleep any more.
func (k *waiters) close(c *Core) {
	k.Enter()
	asleep := 0
	if !k.Closed {
		k.Closed = true
		leader := k.Leader.Load()
		for w := k.first; w != nil; {
			after := w.after
			if w == leader {
				c.Poller.Wake()
			} else {
				k.remove(w)
				asleep--
				w.wake <- struct{}{}
			}
			w = after
		}
	}
	k.Leave(asleep)
}
