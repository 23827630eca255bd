package port

import (
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// dequeue fills out with the notifications that are there, and returns their number. If it leaves
// work behind, it wakes a waiter for it.
func (p *Port) dequeue(w *Call, out Entries) int {
	if !p.levels.any.Load() {
		return p.dequeueOnce(w, out)
	}
	p.levels.mu.RLock()
	defer p.levels.mu.RUnlock()
	return p.dequeueOnce(w, out)
}

// dequeueAlone is dequeue for a call that returns if it finds nothing. No other call, and not the
// helper, must hide something from it.
func (p *Port) dequeueAlone(w *Call, out Entries) int {
	k := &p.Waiters
	if leads := k.leads.Load(); leads%2 == 0 {
		if n := p.dequeueExclusively(w, out); n > 0 || k.leads.Load() == leads {
			return n
		}
	}
	return p.dequeueSuspended(w, out)
}

// dequeueSuspended is dequeueExclusively while the helper does not lead.
func (p *Port) dequeueSuspended(w *Call, out Entries) int {
	p.Waiters.suspendHelper()
	defer p.Waiters.resumeHelper()
	return p.dequeueExclusively(w, out)
}

// dequeueExclusively is dequeue with the lock of levels held alone.
func (p *Port) dequeueExclusively(w *Call, out Entries) int {
	if !p.levels.any.Load() {
		return p.dequeueOnce(w, out)
	}
	p.levels.mu.Lock()
	defer p.levels.mu.Unlock()
	return p.dequeueOnce(w, out)
}

// dequeueOnce is dequeue without the lock of levels.
func (p *Port) dequeueOnce(w *Call, out Entries) int {
	if p.rechecks.Load() != 0 {
		p.recheckAll(w)
	}
	if !p.Waiters.watching.Load() {
		return p.dequeueQueued(w, out)
	}
	n := 0
	if p.Waiters.queue.any() {
		// Half of the entries are for the queue and half for the backend. A single entry alternates
		// (Q2).
		w.queueFirst = !w.queueFirst
		if half := out.Len() / 2; half > 0 {
			n = p.take(w, out.first(half))
		} else if w.queueFirst {
			n = p.take(w, out)
		}
	}
	more := false
	if n < out.Len() {
		var k int
		k, more = p.harvest(w, out.From(n))
		n += k
	}
	if n < out.Len() && p.Waiters.queue.any() {
		n += p.take(w, out.From(n))
	}
	// A leader that has found something is about to leave, and wakes its successor when it does.
	if (more || p.Waiters.queue.any()) && (n == 0 || p.Waiters.leader.Load() != &w.waiter) {
		p.Waiters.WakeOne(&w.waiter)
	}
	return n
}

// dequeueQueued is dequeueOnce on a port that has never had a socket.
func (p *Port) dequeueQueued(w *Call, out Entries) int {
	n := 0
	if p.Waiters.queue.any() {
		n = p.take(w, out)
	}
	if n == out.Len() && p.Waiters.queue.any() { // with entries to spare, the queue was found empty
		p.Waiters.WakeOne(&w.waiter)
	}
	return n
}

// take dequeues from the queue.
func (p *Port) take(w *Call, out Entries) int {
	n, posts, completions := p.typed.TakeQueued(out)
	if posts > 0 {
		p.observePosts(out.first(n))
		w.stripe.dequeuedPosts.Add(uint64(posts))
	}
	if completions > 0 {
		w.stripe.notifications.Add(uint64(completions))
		w.stripe.completions.Add(uint64(completions))
	}
	if removals := n - posts - completions; removals > 0 {
		w.stripe.removals.Add(uint64(removals))
	}
	return n
}

// observePosts records the posts among what was taken from the queue, if the port is observed.
func (p *Port) observePosts(out Entries) {
	o := p.Core.Observer.Load()
	if o == nil {
		return
	}
	at := Millis()
	for i := range out.Len() {
		if kind, _, data := p.typed.Get(out, i); kind == Posted {
			(*o).Posted(at, data)
		}
	}
}

// harvest polls the backend, for no more reports than out holds (C1). more reports that there may
// be others.
func (p *Port) harvest(w *Call, out Entries) (n int, more bool) {
	o := p.Core.Observer.Load()
	rechecks := 0
	for {
		ready := w.ready[:min(out.Len(), len(w.ready))]
		k := p.Core.Poller.Poll(nil, ready)
		more = k == len(ready)
		var at int64 // time for the observer
		if o != nil && k > 0 {
			at = Millis()
		}
		for i := range k {
			// Each of the following reports needs an entry.
			rest := out.first(out.Len() - (k - i - 1)).From(n)
			var got int
			var again bool
			if o == nil {
				got, again = p.deliver(w, &ready[i], rest)
			} else {
				got, again = p.deliverObserved(w, *o, at, &ready[i], rest)
			}
			n += got
			if again {
				rechecks++
			}
		}
		if n > 0 || !more {
			break
		}
		// None of the reports made a notification, and there may be others behind them.
	}
	if n > 0 {
		w.stripe.notifications.Add(uint64(n))
	}
	if rechecks > 0 && (n == 0 || p.Waiters.others(&w.waiter)) {
		// A level still holds for the waiters (T1), and no other call would poll it.
		p.recheckAll(w)
	}
	return n, more
}

// deliver turns a report into a notification, or into several if the socket has a Work, or into
// none. again reports that it put the slot on the recheck list.
//
// It takes no lock, unless the slot has a Work. The swap of the word that decides that this report
// is the notification of a one-shot registration also disables it. So two harvesters cannot both
// deliver (T3), and none can after a removal has swapped the word (G4).
func (p *Port) deliver(w *Call, r *backend.Ready, out Entries) (n int, again bool) {
	index := tokenIndex(r.Token)
	s := p.Table.Lookup(index)
	if s == nil {
		w.stripe.stale.Add(1)
		return 0, false
	}
	for {
		was := s.word.Load()
		if !sameEpoch(was, r.Token) || was&wRegistered == 0 {
			w.stripe.stale.Add(1)
			return 0, false
		}
		if was&wEnabled == 0 {
			if p.notePending(w, s, was, index) {
				return 0, false
			}
			continue
		}
		reg := s.Reg.Load()
		if was&wWorked != 0 {
			if reg == nil || reg.Work == nil {
				continue // removed, or replaced by another registration
			}
			return p.work(w, s, reg, r, out)
		}
		if was&wStream != 0 && r.Mask&(backend.Err|backend.Dead) != 0 {
			r.Mask |= p.behind(was, index, r.Mask)
		}
		e := meaning(r.Mask, wordFilter(was), was&wStream != 0)
		if was&wStrict != 0 && repeats(e, was) {
			e = EventNone
		}
		isSock := reg != nil && reg.fd != nil
		var generation fdstate.NewGeneration
		if e != EventNone && isSock {
			// Before the swap, because once the registration is disabled, a fast enable may read
			// the generation.
			generation = notify(reg.fd, r.Mask)
		}
		is := p.Core.reportedWord(was, e, r.Mask)
		// The swap is made even if nothing changes, because it proves that the record belongs to
		// the word.
		if !s.word.CompareAndSwap(was, is) {
			continue
		}
		if isSock && was&wEdge != 0 && !p.Core.OwnEdges {
			// This must follow the swap: a call that would have blocked before the swap was made
			// before this notification, so it does not show that the socket is drained now.
			reg.fd.Suppressed(suppressedBy(r.Mask))
		}
		if is&wRecheck != 0 && was&wRecheck == 0 {
			p.pushRecheck(s, index)
			again = true
		}
		if e == EventNone {
			return 0, again
		}
		if isSock && was&wOneShot != 0 {
			// Only here: for a registration that stays enabled, a later report may have been
			// delivered before this one.
			reg.fd.Confirm(generation)
		}
		p.typed.Put(out, 0, Packet{Rec: reg, Events: e})
		return 1, again
	}
}

// reportedWord returns a word after a report of m that means e.
func (c *Core) reportedWord(word uint64, e Events, m backend.Mask) uint64 {
	switch {
	case e != EventNone && word&wOneShot != 0:
		return word &^ wEnabled
	case e != EventNone && word&wEdge == 0:
		return word | wRecheck
	case !c.Edges && m&backend.Err == 0:
		// The backend does not report any more. Make it watch the conditions that have not been
		// reported; a stream that is dead in both directions can still be reset.
		return word | wRecheck | reportedBits(m)
	case e != EventNone && word&wStrict != 0:
		return word | reportedBits(m)
	}
	return word
}

// deliverObserved is deliver for an observed port.
//
// The record belongs to the registration: the report is delivered only if the slot's word still has
// the epoch of the token, so the word had it when the record was read.
func (p *Port) deliverObserved(
	w *Call, o Observer, at int64, r *backend.Ready, out Entries,
) (n int, again bool) {
	index := tokenIndex(r.Token)
	seen := o.Seen(index)
	n, again = p.deliver(w, r, out)
	for i := range n {
		// A completion was recorded when it completed.
		if kind, events, _ := p.typed.Get(out, i); kind != Completion {
			o.Notified(seen, at, index, events, kind)
		}
	}
	return n, again
}

// behind returns the conditions of a stream that hold too when m is reported for a word, although
// the report lacks them.
//
// A stream that was reported dead has been started if its word has reported PeerClosed, which the
// backend no longer watches then (unreported). Without PeerClosed, meaning takes a dead stream for
// one that was never started (E6).
//
// A stream that was reported with an error and not dead is polled. Either the stream lives on, with
// something in its error queue, or the report was made between its error and its end (E5, E7).
func (p *Port) behind(word uint64, index uint32, m backend.Mask) backend.Mask {
	if m&backend.Dead != 0 {
		if word&reportedBits(backend.PeerClosed) != 0 {
			return backend.PeerClosed
		}
		return 0
	}
	now := p.Core.Poller.PollOne(Socket(index))
	if now&backend.Dead == 0 {
		return 0
	}
	if has, busy, err := p.probe(index); !has || busy || err != nil {
		return 0 // another socket has the number, or another call is changing the slot
	}
	return now
}

// notePending records a report that came while the registration is disabled, so that enabling
// polls. A peer that keeps sending must not wake waiters again and again, so the second such report
// suppresses the registration. notePending returns false if the word has changed.
func (p *Port) notePending(w *Call, s *Slot, was uint64, index uint32) bool {
	if was&wSuppressed != 0 || !p.Core.Edges {
		return true
	}
	if was&wPending == 0 {
		return s.word.CompareAndSwap(was, was|wPending)
	}
	if !s.Mu.TryLock() {
		return true // another call is changing it, and makes the backend poll
	}
	defer s.Mu.Unlock()
	if !s.word.CompareAndSwap(was, was|wSuppressed) {
		return false
	}
	p.change(w, backend.Change{
		Handle: Socket(index), Action: backend.Suppress, Token: token(was, index),
	})
	return true
}

// work handles a report of a socket with a Work. again reports that it put the slot on the recheck
// list.
//
// It holds the slot's lock. A call that finds the slot locked asks for a recheck instead: what its
// report says may have happened after the other call's last system call.
func (p *Port) work(
	w *Call, s *Slot, reg *Record, r *backend.Ready, out Entries,
) (n int, again bool) {
	held, err := reg.Work.Socket.Hold()
	if err != nil {
		return 0, false // the socket is closed, and its registration is about to end
	}
	defer held.Release() // after the unlock, because the last use closes the socket
	index := tokenIndex(r.Token)
	if !s.Mu.TryLock() {
		return 0, p.markRecheck(s, index, r.Token)
	}
	defer s.Mu.Unlock()
	was := s.word.Load()
	if !sameEpoch(was, r.Token) || was&wEnabled == 0 || s.Reg.Load() != reg {
		w.stripe.stale.Add(1)
		return 0, false
	}
	more := false
	if was&wAccept != 0 {
		n, more = p.takeAccepted(w, s, reg, index, out)
	} else {
		n, more = p.operate(w, s, reg, held, r.Mask, out)
	}
	return n, more && p.markRecheck(s, index, r.Token)
}
