package port

import (
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// Dequeue fills out with what can be had without blocking and returns how many entries it filled. If
// it leaves work behind it wakes a sleeper for it.
func (p *Port) Dequeue(w *Call, out Entries) int {
	if !p.levels.any.Load() {
		return p.DequeueOnce(w, out)
	}
	p.levels.mu.RLock()
	defer p.levels.mu.RUnlock()
	return p.DequeueOnce(w, out)
}

// dequeueAlone is dequeue for a call that gives up if there is nothing.
func (p *Port) dequeueAlone(w *Call, out Entries) int {
	if !p.levels.any.Load() {
		return p.DequeueOnce(w, out)
	}
	p.levels.mu.Lock()
	defer p.levels.mu.Unlock()
	return p.DequeueOnce(w, out)
}

// levels is for persistent levels, which every call is to find for as long as they hold (T1). A call
// that has taken the report of one, and has yet to put it on the recheck list, or has taken that list
// and has yet to make the kernel look again, hides it from the others meanwhile. So calls dequeue with
// the lock shared, and one that would say that there is nothing dequeues alone.
type levels struct {
	any atomic.Bool // there has been such a registration; until then the lock is left out
	mu  sync.RWMutex
}

func (p *Port) DequeueOnce(w *Call, out Entries) int {
	if p.rechecks.Load() != 0 {
		p.recheckAll(w)
	}
	if !p.Core.Watching.Load() {
		return p.dequeueQueued(w, out)
	}
	n := 0
	p.Transfers.gather(w)
	if p.queue.any() {
		// Half for the queue, half for the kernel; a single entry, by turns (Q2).
		w.turn = !w.turn
		if half := out.Len() / 2; half > 0 {
			n = p.take(w, out.first(half))
		} else if w.turn {
			n = p.take(w, out)
		}
	}
	more := false
	if n < out.Len() {
		var k int
		k, more = p.harvest(w, out.from(n))
		n += k
		p.Transfers.gather(w) // the kernel may have told that there is something
	}
	if n < out.Len() && p.queue.any() {
		n += p.take(w, out.from(n))
	}
	// A leader that has found something is about to leave, and wakes its successor then: once is enough.
	if (more || p.queue.any()) && (n == 0 || p.Waiters.Leader.Load() != w) {
		p.Waiters.WakeOne(p.Core, w)
	}
	return n
}

// dequeueQueued is look on a port that has never had a socket.
func (p *Port) dequeueQueued(w *Call, out Entries) int {
	n := 0
	if p.queue.any() {
		n = p.take(w, out)
	}
	if n == out.Len() && p.queue.any() { // with room left, the queue was seen empty
		p.Waiters.WakeOne(p.Core, w)
	}
	return n
}

// wakeForQueue wakes a sleeper for what a call that does not dequeue has queued.
func (p *Port) wakeForQueue() {
	if p.queue.any() {
		p.Waiters.WakeOne(p.Core, nil)
	}
}

func (p *Port) take(w *Call, out Entries) int {
	n, posts, completions := p.typed.TakeQueued(out, p.Core.Observer.Load())
	if posts > 0 {
		w.stripe.dequeuedPosts.Add(uint64(posts))
	}
	if n > posts {
		if completions > 0 {
			w.stripe.notifications.Add(uint64(completions))
			w.stripe.completions.Add(uint64(completions))
		}
		if removals := n - posts - completions; removals > 0 {
			w.stripe.removals.Add(uint64(removals))
		}
	}
	return n
}

// harvest asks the kernel, and never for more than out holds (C1). more says that there may be more.
func (p *Port) harvest(w *Call, out Entries) (n int, more bool) {
	o := p.Core.Observer.Load()
	rechecks := 0
	for {
		ready := w.ready[:min(out.Len(), len(w.ready))]
		k := p.Core.Poller.Poll(nil, ready)
		more = k == len(ready)
		var at int64 // for the observer
		if o != nil && k > 0 {
			at = Millis()
		}
		j := p.gatherReports(w, ready[:k])
		for i := range k {
			// One entry is kept for each of the reports that follow.
			room := out.first(out.Len() - (k - i - 1)).from(n)
			var got int
			var again bool
			if j != nil && j.sockets[i].slot != nil {
				got, again = p.workOn(w, &j.sockets[i], &ready[i], room)
			} else if o == nil {
				got, again = p.deliver(w, &ready[i], room)
			} else {
				got, again = p.deliverObserved(w, o, at, &ready[i], room)
			}
			n += got
			if again {
				rechecks++
			}
		}
		j.end()
		if n > 0 || !more {
			break
		}
		// Reports came, all of them for nobody, and there may be others behind them.
	}
	if n > 0 {
		w.stripe.notifications.Add(uint64(n))
	}
	if rechecks > 0 && (n == 0 || p.Waiters.Count() > 0) {
		// A level still holds for whoever waits (T1), and nobody else would look.
		p.recheckAll(w)
	}
	return n, more
}

// deliver turns one report into a notification, if there is one in it, or into several where it is of a
// socket that the port works on. again says that it put the slot on the recheck list.
//
// It takes no lock. A one-shot registration is disabled by the same swap of the word that decides
// that this report is its notification, so two harvesters cannot both deliver (T3), and none can
// after a removal has swapped it (G4).
func (p *Port) deliver(w *Call, r *backend.Ready, out Entries) (n int, again bool) {
	index := tokenIndex(r.Token)
	s := p.Table.Lookup(index)
	if s == nil {
		w.stripe.stale.Add(1)
		return 0, false
	}
	for {
		was := s.Word.Load()
		if !SameEpoch(was, r.Token) || was&WRegistered == 0 {
			w.stripe.stale.Add(1)
			return 0, false
		}
		if was&WEnabled == 0 {
			if p.note(w, s, was, index) {
				return 0, false
			}
			continue
		}
		reg := s.Reg.Load()
		if was&wWorked != 0 {
			if reg == nil || reg.Work == nil {
				continue // removed in between, or replaced by another
			}
			return p.work(w, s, reg, r, out)
		}
		if was&wStream != 0 && r.Mask&(backend.Err|backend.Dead) == backend.Err {
			r.Mask |= p.confirmDead(index)
		}
		e := meaning(r.Mask, wordFilter(was), was&wStream != 0)
		if was&wStrict != 0 && repeats(e, was) {
			e = EventNone
		}
		tied := reg != nil && reg.fd != nil
		var turn fdstate.NewGeneration
		if e != EventNone && tied {
			// Before the swap: once the registration is disabled, somebody may enable it and vouch.
			turn = notify(reg.fd, r.Mask)
		}
		is := was
		switch {
		case e != EventNone && was&wOneShot != 0:
			is &^= WEnabled
		case e != EventNone && was&wEdge == 0:
			is |= WRecheck
		case !p.Core.Edges && r.Mask&backend.Err == 0:
			// The kernel is silent now. Let it go on with what has not been told; a stream that
			// is dead to both sides can still be reset.
			is |= WRecheck | reportedBits(r.Mask)
		case e != EventNone && was&wStrict != 0:
			is |= reportedBits(r.Mask)
		}
		// A swap even where nothing changes: it proves that the key is this registration's.
		if !s.Word.CompareAndSwap(was, is) {
			continue
		}
		if tied && was&wEdge != 0 && !p.Core.OwnEdges {
			// After the swap: a would-block that came before it is not of whoever is notified.
			reg.fd.Suppressed(silenced(r.Mask))
		}
		if is&WRecheck != 0 && was&WRecheck == 0 {
			p.pushRecheck(s, index)
			again = true
		}
		if e == EventNone {
			return 0, again
		}
		if tied && was&wOneShot != 0 {
			// Of any other registration a later report may have been delivered before this one.
			reg.fd.Confirm(turn)
		}
		p.typed.Put(out, 0, Packet{Rec: reg, Events: e})
		return 1, again
	}
}

// deliverObserved is deliver that records what it delivers.
//
// The record is the registration's: the report was made after its token's epoch had begun, and is delivered
// only if the slot's word is still of that epoch, which it therefore was when the record was looked up.
func (p *Port) deliverObserved(w *Call, o *Observer, at int64, r *backend.Ready, out Entries) (n int, again bool) {
	index := tokenIndex(r.Token)
	rec := o.of(index)
	n, again = p.deliver(w, r, out)
	for i := range n {
		was, events := p.typed.Get(out, i)
		kind := TraceNotified
		switch was {
		case Completion:
			continue // noted where it was completed
		case Connection, NoConnection:
			kind = traceAccepted
		}
		o.note(rec, at, index, events, kind)
	}
	return n, again
}

// confirmDead looks at a stream that has an error and is not dead. Either it lives on, with something in
// its error queue, or the report caught it between its error and its end (E5, E7).
func (p *Port) confirmDead(index uint32) backend.Mask {
	m := p.Core.Poller.Look(Socket(index))
	if m&backend.Dead == 0 {
		return 0
	}
	if has, busy, err := p.Probe(index); !has || busy || err != nil {
		return 0 // the number is another socket's by now, or about to be looked at again
	}
	return m
}

// note remembers a report that came while the registration is disabled: enabling must ask the kernel.
// A peer that keeps on sending must not wake waiters for ever, so the second such report silences the
// kernel. It returns false where the word changed under it.
func (p *Port) note(w *Call, s *Slot, was uint64, index uint32) bool {
	if was&wSuppressed != 0 || !p.Core.Edges {
		return true
	}
	if was&wPending == 0 {
		return s.Word.CompareAndSwap(was, was|wPending)
	}
	if !s.Mu.TryLock() {
		return true // somebody is changing it, and asks the kernel in doing so
	}
	defer s.Mu.Unlock()
	if !s.Word.CompareAndSwap(was, was|wSuppressed) {
		return false
	}
	w.single[0] = backend.Change{Handle: Socket(index), Action: backend.Suppress, Token: token(was, index)}
	p.Core.Poller.Poll(w.single[:], nil)
	return true
}

// pushRecheck links a slot whose word has just got WRecheck.
func (p *Port) pushRecheck(s *Slot, index uint32) {
	for {
		head := p.rechecks.Load()
		s.next = head
		if p.rechecks.CompareAndSwap(head, index+1) {
			return
		}
	}
}

// recheckAll asks the kernel again about every slot on the recheck list: persistent levels that were
// notified of, and on kernels without edges whatever a report has silenced.
func (p *Port) recheckAll(w *Call) {
	for link := p.rechecks.Swap(0); link != 0; {
		index := link - 1
		s := p.Table.Lookup(index)
		p.lockSlot(w, s)
		link = s.next // from here on the slot may be linked again
		_, is := s.update(func(v uint64) uint64 { return v &^ WRecheck })
		// A level that the kernel has reported and goes on watching as the word says.
		same := p.Core.Edges && is&(wWorked|wOneShot|wEdge|wPending|wSuppressed) == 0
		if is&WRegistered == 0 || is&WEnabled == 0 || same && s.drainedFor(is) {
			s.Mu.Unlock()
			continue
		}
		p.add(w, item{slot: s, was: is, index: index}, backend.Change{
			Handle: Socket(index), Action: backend.Set, Token: token(is, index), Interest: p.Core.interest(is), SkipIdle: same,
		})
	}
	p.flush(w)
}
