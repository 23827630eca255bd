package port

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// levels makes every call find a persistent level for as long as it holds (T1). In two windows a
// call hides such a level from others: between harvesting its report and putting the slot on the
// recheck list, and between taking that list and the Set that makes the kernel poll again. So calls
// dequeue with the lock shared, and a call that would return with nothing dequeues alone.
type levels struct {
	any atomic.Bool // there has been a persistent level; until then the lock is not used
	mu  sync.RWMutex
}

// recheckDelay is the delay before a condition that persists is polled again.
const recheckDelay = 250 * time.Millisecond

// pushRecheck adds a slot to the recheck list. Its word has just got wRecheck.
func (p *Port) pushRecheck(s *Slot, index uint32) {
	for {
		head := p.rechecks.Load()
		s.next = head
		if p.rechecks.CompareAndSwap(head, index+1) {
			return
		}
	}
}

// markRecheck puts a registration on the recheck list if it still has the token and is enabled.
func (p *Port) markRecheck(s *Slot, index uint32, token uint64) bool {
	for {
		was := s.word.Load()
		if !sameEpoch(was, token) || was&wEnabled == 0 {
			return false
		}
		if was&wRecheck == 0 {
			if !s.word.CompareAndSwap(was, was|wRecheck) {
				continue
			}
			p.pushRecheck(s, index)
		}
		if was&wOverlapped != 0 {
			p.Waiters.helpRecheck()
		}
		return true
	}
}

// Recheck puts a registration on the recheck list if it is enabled, and wakes a waiter to poll it.
func (p *Port) Recheck(s *Slot, index uint32) {
	if p.markRecheck(s, index, s.word.Load()) {
		p.Waiters.WakeOne(nil)
	}
}

// recheckAll makes the backend poll every slot on the recheck list: persistent levels that were
// notified of, and on backends without edges whatever a report has suppressed.
func (p *Port) recheckAll(w *Call) {
	for link := p.rechecks.Swap(0); link != 0; {
		index := link - 1
		s := p.Table.Lookup(index)
		p.lockSlot(w, s)
		link = s.next // once rechecked, the slot may be linked again
		p.recheckSlot(w, s, index)
	}
	p.flush(w)
}

// recheckOperations is recheckAll for the helper. It leaves other slots than those of operations on
// the list.
func (p *Port) recheckOperations(w *Call) {
	for link := p.rechecks.Swap(0); link != 0; {
		index := link - 1
		s := p.Table.Lookup(index)
		link = s.next // only the call that has taken the list changes it
		if s.word.Load()&wOverlapped == 0 {
			p.pushRecheck(s, index)
			continue
		}
		p.lockSlot(w, s)
		p.recheckSlot(w, s, index)
	}
	p.flush(w)
}

// recheckSlot adds the change that makes the backend poll a slot to the batch. The slot is locked,
// and has just been taken off the recheck list.
func (p *Port) recheckSlot(w *Call, s *Slot, index uint32) {
	_, is := s.update(func(v uint64) uint64 { return v &^ wRecheck })
	// same: a level that the backend has reported, and watches as the word says.
	same := p.Core.Edges && is&(wWorked|wOneShot|wEdge|wPending|wSuppressed) == 0
	if is&wRegistered == 0 || is&wEnabled == 0 || same && s.drainedFor(is) {
		s.Mu.Unlock()
		return
	}
	p.add(w, &Entry{}, s, is, index, &backend.Change{
		Handle: Socket(index), Action: backend.Set, Token: token(is, index),
		Interest: p.Core.interest(is), SkipIdle: same,
	})
}

// sockBlocked re-arms an edge registration on a backend without edges: a call on the socket would
// have blocked, so the reported condition has been drained (T2).
//
// Some conditions persist although a call would have blocked: an error queue that is not read, or a
// datagram socket that was shut down for receiving. Reported again at once they would make the port
// and its handler spin (E8), so those are polled after a delay.
func (p *Port) sockBlocked(handle uintptr, d fdstate.Dir) {
	if handle > MaxIndex || !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
	var reported uint64
	if d&fdstate.Recv != 0 {
		reported |= reportedBits(backend.In)
	}
	if d&fdstate.Send != 0 {
		reported |= reportedBits(backend.Out)
	}
	index := uint32(handle)
	s := p.Table.Lookup(index)
	if s == nil {
		return
	}
	if p.persists(handle, s) {
		p.recheckAfter(recheckDelay, index, reported)
		return
	}
	p.recheckDrained(s, index, reported)
}

// persists reports whether a condition holds that neither receiving nor sending ends. A call would
// have blocked.
func (p *Port) persists(handle uintptr, s *Slot) bool {
	m := p.Core.Poller.PollOne(handle)
	return m&backend.Err != 0 || !s.Stream() && m&(backend.PeerClosed|backend.Dead) != 0
}

// drainedFor reports whether the registration's socket knows that no condition of the filter holds,
// except those that the backend has yet to report. The slot is locked.
func (s *Slot) drainedFor(word uint64) bool {
	reg := s.Reg.Load()
	return reg != nil && reg.fd != nil && reg.fd.Drained(directions(wordFilter(word)))
}

// recheckAfter rechecks a registration after a delay. See recheckDrained for reported.
func (p *Port) recheckAfter(d time.Duration, index uint32, reported uint64) {
	c := p.Core // not the port, which the program may drop
	time.AfterFunc(d, func() {
		p := c.Port()
		if p == nil || !c.Enter() {
			return
		}
		defer c.Leave()
		s := p.Table.Lookup(index)
		if reg := s.Reg.Load(); reg != nil && reg.Work != nil && reg.Work.Accept != nil {
			reg.Work.Accept.Paused.Store(false)
		}
		p.recheckDrained(s, index, reported)
	})
}

// recheckDrained rechecks a registration also for conditions that had been reported and have been
// drained since: bits of the word.
func (p *Port) recheckDrained(s *Slot, index uint32, reported uint64) {
	s.update(func(v uint64) uint64 { return v &^ reported })
	p.Recheck(s, index)
}
