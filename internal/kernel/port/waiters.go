package port

import (
	"sync/atomic"
	"time"
)

// waiters are the calls that block because they found nothing to dequeue. Once the port has had a
// socket, one of them, the leader, blocks in the backend's Park. The others, the followers, block
// on a channel, each with its own timeout and context.
//
// Why no wake-up is lost. Work is either in the queue or in the kernel.
//
// A port that has never had a socket has no leader, and only its queue holds work. The first
// registration sets watching before it reaches the kernel, and then wakes a waiter, which becomes
// the leader.
//
// Queue. A producer first queues and then looks for waiters; a waiter is first added to the list
// and then checks the queue. So either the producer finds the waiter, or the waiter finds the
// entry. A producer wakes no one while a chosen waiter has yet to poll (chosen). That waiter clears
// chosen before it polls (wasChosen), so its poll finds every entry that was queued before a
// producer saw chosen set.
//
// Kernel. The leader is added to the list, then opens the backend's waker and polls once more
// (Park). While any call waits there is a leader, or a call that is awake and will provide one: a
// leader that leaves chooses a successor under the lock (leave), which becomes the leader as soon
// as it finds nothing to do. A waiter that is chosen after it has polled, and does not wait again,
// chooses another in its place (leave again). A poll that fills its slice may leave reports in the
// kernel, and these wake no one. So the polling call chooses another waiter; the leader does so
// when it leaves.
//
// The helper (helperstate.go) is a leader that is not on the list, and is never chosen. A call that
// is added while the helper leads wakes it under the lock. The helper then ends its lead and
// chooses a successor, as any leader does.
//
// The call that chooses a follower removes it from the list and sends a token on its channel. The
// follower receives the token before it is added again, so there is never more than one token and
// the sender never blocks.
type waiters struct {
	// Turnstile is the lock. Its count is the number of calls on the list, which producers read
	// without the lock.
	Turnstile
	// chosen is to be woken, and has not polled yet. It is set under the lock, and cleared by the
	// call itself.
	chosen atomic.Pointer[waiter]
	leader atomic.Pointer[waiter] // on the list; set under the lock

	first   *waiter // the latest to be added
	wakeups uint64
	closed  bool

	queue QueueEnds
	core  *Core // of the backend in which the leader parks, and of the helper
	// watching is set by the first registration. Until then the backend has nothing to report, and
	// a call waits for the queue alone.
	watching atomic.Bool
	// help says when the helper's timer must be started. leads is odd while the helper leads; it
	// changes under the lock.
	help  atomic.Uint32
	leads atomic.Uint32
}

// A waiter is the part of a call that waits.
type waiter struct {
	wake   chan struct{} // capacity 1: a token from the call that took this one off the list
	woken  bool          // it has received that token
	timer  *time.Timer
	listed bool
	prev   *waiter
	after  *waiter
	// alert wakes a call that waits outside (PollOutside). It is nil for others, and changes
	// only while the call is not on the list and is owed no token.
	alert func()
}

// add adds a call to the list. lead reports whether it is the leader; open is false if the port is
// closed.
func (k *waiters) add(w *waiter) (lead, open bool) {
	k.Enter()
	if k.closed {
		k.Leave(0)
		return false, false
	}
	w.listed, w.woken, w.prev, w.after = true, false, nil, k.first
	if k.first != nil {
		k.first.prev = w
	}
	k.first = w
	if k.leader.Load() == nil && k.watching.Load() {
		k.leader.Store(w)
		lead = true
	} else if k.helping() {
		k.core.Poller.Wake() // the helper chooses a waiter, which becomes the leader
	}
	k.Leave(+1)
	return lead, true
}

// remove removes a call from the list. The lock is held; the caller changes the count.
func (k *waiters) remove(w *waiter) {
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

// leave removes a call that is awake from the list. If the call does not wait again (out), the
// others must keep a leader, and work that the call was chosen for must go to another.
func (k *waiters) leave(w *waiter, out bool) {
	// If it has received a token, it is off the list and has polled.
	if !w.woken || out && k.needsWaiter() {
		k.unlist(w, out)
	}
	if out && k.help.Load() == helpDue {
		k.timeHelp(helpDue)
	}
}

// unlist is leave for a call that is on the list, or must wake another.
func (k *waiters) unlist(w *waiter, out bool) {
	k.Enter()
	asleep := 0
	owed := false
	if w.listed {
		k.remove(w)
		asleep--
	} else {
		owed = !w.woken // it was chosen after it had woken otherwise; its token is on the way
	}
	if k.leader.Load() == w {
		k.leader.Store(nil)
	}
	var next *waiter
	if chosen := k.wasChosen(w); out && (chosen || k.needsWaiter()) {
		next = k.choose(nil)
	}
	k.unlockAndWake(next, asleep)
	if owed {
		<-w.wake
	}
}

// needsWaiter reports whether another call must wake when one goes. The lock need not be held: if
// there is a leader now, that leader chooses its successor when it goes.
func (k *waiters) needsWaiter() bool {
	return k.leader.Load() == nil && k.watching.Load() || k.queue.any()
}

// others reports whether calls other than w wait. Another call may be counted although it has been
// chosen and w is not.
func (k *waiters) others(w *waiter) bool {
	n := k.Count()
	return n > 1 || n == 1 && k.leader.Load() != w
}

// wasChosen reports whether w was chosen to be woken, and clears the mark. w must poll afterwards;
// that poll handles the work that it was woken for, so no other call need be woken for it (P3).
func (k *waiters) wasChosen(w *waiter) (chosen bool) {
	if k.chosen.Load() != w {
		return false
	}
	k.chosen.Store(nil)
	return true
}

// appointLeader makes a call that waits since before the first registration the leader.
func (k *waiters) appointLeader() {
	k.Enter()
	var next *waiter
	if k.leader.Load() == nil {
		next = k.choose(nil)
	}
	k.unlockAndWake(next, 0)
}

// WakeOne wakes one waiter other than self, unless there is none or one that was chosen has yet to
// poll.
func (k *waiters) WakeOne(self *waiter) {
	if k.Count() == 0 || k.chosen.Load() != nil {
		return
	}
	k.Enter()
	k.unlockAndWake(k.choose(self), 0)
}

// choose marks a call other than self to be woken: the follower that was added last, because its
// memory is most likely in the cache, or else the leader. A follower is removed from the list and
// returned, for unlockAndWake; the leader is woken here, while the lock keeps it the leader and so
// its backend open.
func (k *waiters) choose(self *waiter) *waiter {
	if k.closed || k.chosen.Load() != nil {
		return nil
	}
	leader := k.leader.Load()
	w := k.first
	for w != nil && (w == self || w == leader) {
		w = w.after
	}
	if w == nil && leader != self && !k.helping() {
		w = leader
	}
	if w == nil {
		return nil
	}
	k.chosen.Store(w)
	k.wakeups++
	if w == leader {
		k.wakeLeader(w)
		return nil
	}
	k.remove(w)
	return w
}

// unlockAndWake unlocks, and then wakes the follower that choose has returned. count is what else
// changes the count.
func (k *waiters) unlockAndWake(chosen *waiter, count int) {
	if chosen == nil {
		k.Leave(count)
		return
	}
	k.Leave(count - 1)
	chosen.sendToken()
}

// woken returns the number of calls that were chosen.
func (k *waiters) woken() uint64 {
	k.Enter()
	defer k.Leave(0)
	return k.wakeups
}

// close wakes every waiter. No call waits from then on.
func (k *waiters) close() {
	k.Enter()
	asleep := 0
	if !k.closed {
		k.closed = true
		leader := k.leader.Load()
		for w := k.first; w != nil; {
			after := w.after
			if w == leader {
				k.wakeLeader(w)
			} else {
				k.remove(w)
				asleep--
				w.sendToken()
			}
			w = after
		}
		if k.helping() {
			k.core.Poller.Wake()
		}
	}
	k.Leave(asleep)
}

// QueueEnds are the locks of the two ends of a queue. Each counts the entries that have passed it.
type QueueEnds struct{ In, Out *Turnstile }

// any reports whether the queue holds anything.
func (q QueueEnds) any() bool { return q.In.Count() != q.Out.Count() }

// wakeLeader wakes the leader. The lock is held, so it stays the leader.
func (k *waiters) wakeLeader(w *waiter) {
	if w.alert != nil {
		w.alert()
		return
	}
	k.core.Poller.Wake()
}

// sendToken sends a follower its token. It has been removed from the list, and may end as soon as
// it has the token.
func (w *waiter) sendToken() {
	alert := w.alert
	w.wake <- struct{}{}
	if alert != nil {
		alert()
	}
}

// wakeForQueue wakes a waiter if the queue is not empty. It is for calls that queue entries and do
// not dequeue.
func (p *Port) wakeForQueue() {
	if p.Waiters.queue.any() {
		p.Waiters.WakeOne(nil)
	}
}
