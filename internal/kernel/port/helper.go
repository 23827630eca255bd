package port

import (
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// This file has the helper's goroutine. helperstate.go says when it runs, and why nothing is lost.

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
