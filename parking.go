package socknotify

import (
	"context"
	"fmt"
	"runtime/trace"
	"sync"
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
// producer leaves the sleepers alone if one has been picked that has yet to look (waking): it clears
// waking before it looks (answer), so an entry queued before a producer saw waking set is seen by that look.
//
// Kernel: the leader is listed, then opens the kernel's wake-up and looks once more (Park). While
// anybody sleeps there is a leader, or somebody is awake who is bound to see to it: a leader that
// leaves picks a successor under the lock (leave), who leads as soon as it finds nothing to do, and a
// sleeper that is picked after it has looked, and does not come back, passes that on (leave again).
// A harvest that filled all the room it had may have left reports behind that wake nobody any more,
// so it picks a sleeper too.
//
// Each picked sleeper is off the list, so a token in its channel is the only one; nobody blocks on
// sending one.
type parking[K comparable] struct {
	asleep  atomic.Int32 // length of the list, for producers who would rather not take the lock
	waking  atomic.Bool  // somebody was picked and has not looked yet
	wakeups atomic.Uint64

	mu     sync.Mutex
	first  *call[K] // the latest sleeper
	leader *call[K] // on the list
	closed bool
}

// forever is a time-out that does not fit into deadlines; it is longer than a century.
const forever = time.Duration(1) << 62

// sleep blocks until something can be dequeued, the port is closed, the context is done or the
// time-out has passed.
func (p *Port[K]) sleep(w *call[K], ctx context.Context, out []Notification[K], timeout time.Duration) (int, error) {
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, regionWait).End()
	}
	k := &p.parking
	var until time.Time
	if timeout > 0 && timeout < forever {
		until = time.Now().Add(timeout)
	}
	for {
		lead, open := k.enlist(p.core, w)
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
			k.answer(w)
			n = p.lastLook(w, out)
		}
		if n == 0 && err == nil {
			switch {
			case p.core.closed.Load():
				err = ErrClosed
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case !until.IsZero() && !time.Now().Before(until):
				err = ErrTimeout
			}
		}
		k.leave(w, p, n > 0 || err != nil)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// lead parks in the kernel, which harvests once more before it sleeps.
func (p *Port[K]) lead(w *call[K], ctx context.Context, out []Notification[K], until time.Time) (int, error) {
	if ctx.Done() != nil {
		// The kernel may be woken only while this call leads, so the lock is taken for it.
		stop := context.AfterFunc(ctx, func() {
			k := &p.parking
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.leader == w {
				p.core.kernel.Wake()
			}
		})
		defer stop()
	}
	w.out, w.found = out, 0
	err := p.core.kernel.Park(until, w.look)
	w.out = nil
	return w.found, err
}

// follow sleeps on the call's channel.
func (p *Port[K]) follow(w *call[K], ctx context.Context, out []Notification[K], until time.Time) int {
	if p.queue.any() || p.relook.Load() != 0 {
		p.parking.answer(w)
		if n := p.dequeue(w, out); n > 0 {
			return n
		}
	}
	done := ctx.Done()
	if until.IsZero() {
		select {
		case <-w.wake:
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
	case <-w.timer.C:
	case <-done:
	}
	w.timer.Stop()
	return 0
}

// enlist puts a call on the list. open is false where the port is closed.
func (k *parking[K]) enlist(c *core, w *call[K]) (lead, open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false, false
	}
	w.listed, w.prev, w.after = true, nil, k.first
	if k.first != nil {
		k.first.prev = w
	}
	k.first = w
	k.asleep.Add(1)
	if k.leader == nil && c.watching.Load() {
		k.leader = w
	}
	return k.leader == w, true
}

// unlist takes a call off the list. The lock is held.
func (k *parking[K]) unlist(w *call[K]) {
	if w.prev != nil {
		w.prev.after = w.after
	} else {
		k.first = w.after
	}
	if w.after != nil {
		w.after.prev = w.prev
	}
	w.listed, w.prev, w.after = false, nil, nil
	k.asleep.Add(-1)
}

// leave takes a call off the list that is awake. If it is on its way out, the others must not be left
// without a leader, nor what it was picked for without anybody to see to it.
func (k *parking[K]) leave(w *call[K], p *Port[K], out bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.listed {
		k.unlist(w)
	} else {
		select {
		case <-w.wake: // picked after it had woken for another reason
		default:
		}
	}
	if k.leader == w {
		k.leader = nil
	}
	picked := k.answer(w)
	if out && (picked || k.leader == nil && p.core.watching.Load() || p.queue.any()) {
		k.pick(p.core, nil)
	}
}

// answer is for a sleeper that is about to look: it sees to what it has been picked for, if it has, so that it
// need not wake another for that (P3).
func (k *parking[K]) answer(w *call[K]) (picked bool) {
	if !w.baton.Load() || !w.baton.Swap(false) {
		return false
	}
	k.waking.Store(false)
	return true
}

// appoint sees to a leader among those who went to sleep before the first socket was registered.
func (k *parking[K]) appoint(c *core) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leader == nil {
		k.pick(c, nil)
	}
}

// wakeOne wakes one sleeper other than self, if there is one and none is on its way already.
func (k *parking[K]) wakeOne(c *core, self *call[K]) {
	if k.asleep.Load() == 0 || k.waking.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pick(c, self)
}

// pick chooses the latest follower, whose memory is the warmest, or else the leader; never self, a
// call that is on the list but awake. The lock is held.
func (k *parking[K]) pick(c *core, self *call[K]) {
	w := k.first
	for w != nil && (w == self || w == k.leader) {
		w = w.after
	}
	if w == nil && k.leader != self {
		w = k.leader
	}
	if w == nil || k.closed || k.waking.Load() {
		return
	}
	k.waking.Store(true)
	w.baton.Store(true) // after waking, which whoever takes it clears
	k.wakeups.Add(1)
	k.rouse(w, c)
}

// rouse ends a sleep. The lock is held, so the leader is still one, and its kernel open.
func (k *parking[K]) rouse(w *call[K], c *core) {
	if w == k.leader {
		c.kernel.Wake()
		return
	}
	k.unlist(w)
	w.wake <- struct{}{}
}

// close wakes everybody and lets nobody sleep any more.
func (k *parking[K]) close(c *core) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	for w := k.first; w != nil; {
		after := w.after
		k.rouse(w, c)
		w = after
	}
}
