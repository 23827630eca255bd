package port

import (
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
)

// A helper carries out operations while no call does (O13). It consists of a timer, and of a
// goroutine that exists only while operations wait for their sockets, no call waits on the port,
// and none has dequeued for a period of the timer.
//
// The goroutine leads: it parks in the backend as a leader does. It is not on the list of waiters,
// so no producer wakes it. It has no entries: completions are queued, and any other report is put
// off (keep). The slot of such a report goes on the recheck list, and the next call that dequeues
// makes the backend report it again. The helper rechecks the slots of operations alone.
//
// The timer keeps calls that come and go from starting a goroutine each time. It runs while
// operations wait and calls dequeue. waiters.help says when it must be started:
//
//	helpNone   by the start of an operation that waits. No operation waits.
//	helpDue    by the next call that stops waiting. There was a waiter when the timer fired.
//	helpTimed  by its own function. It runs, or its function does.
//
// The call that has swapped the state to helpTimed, and then the function, owns the timer and the
// state.
//
// Why no operation is left alone. The function stores helpNone and then counts the operations; a
// start counts its operation and then loads the state. The function stores helpDue and then counts
// the waiters; a call leaves their list and then loads the state. So in each case one of the two
// finds the other, and starts the timer. The count of operations is a sum over the stripes, which
// change while it is taken. It can be too small only if it has missed an operation that was
// counted after helpNone was stored, whose start then starts the timer.
//
// Why no wake-up is lost. A call that is added to the list while the helper leads wakes it under
// the lock, and the helper ends its lead under the lock if the list is not empty. A call that puts
// the slot of an operation on the recheck list reads leads afterwards; the helper begins to lead,
// and then rechecks.
//
// Why a call that returns with nothing has missed nothing. What the helper has taken from the
// kernel is neither there nor on the recheck list for a moment. Such a call polls while the helper
// does not lead (dequeueAlone): it has read the same even leads before and after, or it has
// suspended the helper.
type helper struct {
	timer    *time.Timer // its function is Core.help
	dequeued uint64      // how much was, when the timer last fired
	recheck  atomic.Bool // an operation's slot may be on the recheck list

	// The lock of waiters guards the following.
	suspended int32         // calls that do not let the helper lead
	left      chan struct{} // is closed when the lead ends
}

// lead stands for a helper as the leader of its port. It is never on a list.
var lead waiter

const (
	helpNone = iota
	helpDue
	helpTimed
)

// HelpAfter is the period of the timer. A busy port pays for one run of its function in each, and
// a program that does not dequeue waits for two at most.
const HelpAfter = 50 * time.Millisecond

// helping reports whether the helper leads.
func (k *waiters) helping() bool { return k.leads.Load()%2 != 0 }

// timeHelp starts the timer if the state is still from.
func (k *waiters) timeHelp(from uint32) {
	if !k.help.CompareAndSwap(from, helpTimed) {
		return
	}
	h := &k.core.helper
	if h.timer == nil {
		h.timer = time.AfterFunc(forever, k.core.help) // its function uses h.timer
	}
	h.timer.Reset(k.core.HelpAfter)
}

// wakeHelper makes the helper poll, and end its lead if there is reason to.
func (k *waiters) wakeHelper() {
	if !k.helping() {
		return
	}
	k.Enter()
	defer k.Leave(0)
	if k.helping() {
		k.core.Poller.Wake()
	}
}

// helpRecheck makes the helper recheck the slots of operations.
func (k *waiters) helpRecheck() {
	if k.helping() {
		k.core.helper.recheck.Store(true)
		k.wakeHelper()
	}
}

// SuspendHelper makes the helper end its lead, and lead no more.
func (p *Port) SuspendHelper() { p.Waiters.suspendHelper() }

// suspendHelper makes the helper end its lead, and lead no more until resumeHelper.
func (k *waiters) suspendHelper() {
	k.Enter()
	k.core.helper.suspended++
	var left chan struct{}
	if k.helping() {
		left = k.core.helper.left
		k.core.Poller.Wake()
	}
	k.Leave(0)
	if left != nil {
		<-left
	}
}

func (k *waiters) resumeHelper() {
	k.Enter()
	defer k.Leave(0)
	k.core.helper.suspended--
}

// help is the function of the timer. It keeps the port reachable only while it polls.
func (c *Core) help() {
	if !c.Enter() {
		return
	}
	defer c.Leave()
	if p := c.Port(); p == nil || !p.beginHelp() {
		return
	}
	park := c.Poller.Park
	if c.Park != nil {
		park = c.Park
	}
	for {
		err := park(time.Time{}, c.helpOnce)
		if p := c.Port(); p == nil || p.endHelp(err != nil) {
			return
		}
	}
}

// helpOnce polls for the helper, and reports whether it must not park.
func (c *Core) helpOnce() bool {
	p := c.Port()
	return p == nil || p.helpOnce()
}

// beginHelp decides what follows when the timer has fired. True means that the helper leads.
func (p *Port) beginHelp() bool {
	k := &p.Waiters
	h := &k.core.helper
	was := h.dequeued
	h.dequeued = p.dequeued()
	switch {
	case !p.operating():
		k.help.Store(helpNone)
		if !p.operating() || !k.help.CompareAndSwap(helpNone, helpTimed) {
			return false
		}
	case was != h.dequeued: // the calls that dequeue carry out operations
	case k.Count() > 0:
		k.help.Store(helpDue)
		if k.Count() > 0 || !k.help.CompareAndSwap(helpDue, helpTimed) {
			return false
		}
	case p.leadHelp():
		return true
	}
	h.timer.Reset(k.core.HelpAfter)
	return false
}

// leadHelp makes the helper the leader, if there is none and reason for it.
func (p *Port) leadHelp() bool {
	k := &p.Waiters
	h := &k.core.helper
	k.Enter()
	defer k.Leave(0)
	if p.helpOver() || k.leader.Load() != nil {
		return false
	}
	k.leader.Store(&lead)
	h.left = make(chan struct{})
	h.recheck.Store(true)
	k.leads.Add(1)
	return true
}

// endHelp ends the lead of the helper if there is no reason for it any more, or parking has failed.
// The timer's function decides whether it leads again.
func (p *Port) endHelp(failed bool) bool {
	k := &p.Waiters
	h := &k.core.helper
	k.Enter()
	if !failed && !p.helpOver() {
		k.Leave(0)
		return false
	}
	k.leader.Store(nil)
	close(h.left)
	k.leads.Add(1)
	k.unlockAndWake(k.choose(nil), 0)
	h.timer.Reset(k.core.HelpAfter)
	return true
}

// helpOver reports whether the helper must not lead: a call waits or has suspended it, no operation
// waits, or the port is closed. The lock of waiters is held.
func (p *Port) helpOver() bool {
	k := &p.Waiters
	return k.first != nil || k.core.helper.suspended > 0 || k.closed || !p.operating()
}

// operating reports whether operations wait for their sockets.
func (p *Port) operating() bool {
	n := int64(0)
	for i := range p.Core.Stripes {
		n += p.Core.Stripes[i].operating.Load()
	}
	return n > 0
}

// dequeued returns the number of notifications that were dequeued.
func (p *Port) dequeued() (n uint64) {
	for i := range p.Core.Stripes {
		t := &p.Core.Stripes[i]
		n += t.notifications.Load() + t.removals.Load() + t.dequeuedPosts.Load()
	}
	return n
}

// helpOnce polls for the helper, and reports whether it must not park.
func (p *Port) helpOnce() bool {
	w := p.Begin()
	if w == nil {
		return true
	}
	defer p.End(w)
	k := &p.Waiters
	k.Enter()
	over := p.helpOver()
	k.Leave(0)
	if over {
		return true // the Wake for this may have ended another Park (Core.Park)
	}
	if k.core.helper.recheck.Swap(false) {
		p.recheckOperations(w)
	}
	n := p.Core.Poller.Poll(nil, w.ready[:])
	for i := range n {
		p.keep(w, &w.ready[i])
	}
	return n > 0
}

// keep is deliver for the helper. A report for operations carries them out. The slot of any other
// registration is rechecked by the next call that dequeues: what was reported holds then, or has
// ended without a notification, as if the backend had not been polled before.
func (p *Port) keep(w *Call, r *backend.Ready) {
	index := tokenIndex(r.Token)
	s := p.Table.Lookup(index)
	if s == nil {
		w.stripe.stale.Add(1)
		return
	}
	for {
		was, reg := s.word.Load(), s.Reg.Load()
		switch {
		case !sameEpoch(was, r.Token) || was&wRegistered == 0:
			w.stripe.stale.Add(1)
			return
		case was&wEnabled == 0:
			if p.notePending(w, s, was, index) {
				return
			}
		case was&wOverlapped != 0:
			if reg != nil && reg.Work != nil { // otherwise removed, or replaced
				p.work(w, s, reg, r, Entries{})
				return
			}
		default:
			if reg != nil && reg.fd != nil && was&(wEdge|wOneShot) == 0 {
				notify(reg.fd, r.Mask) // a level is not rechecked if the socket seems drained
			}
			if p.markRecheck(s, index, r.Token) {
				return
			}
		}
	}
}
