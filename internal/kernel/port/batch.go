package port

import "github.com/socknotify/socknotify/internal/kernel/backend"

// A call locks each slot that it changes until the batch of the changes is flushed. Two calls may
// each hold slots that the other wants. So no call waits for a slot's lock without having flushed.

// lockSlot locks a slot. It flushes before it waits.
func (p *Port) lockSlot(w *Call, s *Slot) {
	if !s.Mu.TryLock() {
		p.flush(w)
		s.Mu.Lock()
	}
}

// add appends the change of an entry, and the lock of its slot, to the batch.
func (p *Port) add(w *Call, r *Entry, s *Slot, was uint64, index uint32, c *backend.Change) {
	b := &w.batch
	it := &b.items[b.n]
	it.Entry, it.slot, it.was, it.index = *r, s, was, index
	b.changes[b.n] = *c
	if b.n++; b.n == batchSize {
		p.flush(w)
	}
}

// change applies one change at once. The result is valid until the next one.
func (p *Port) change(w *Call, c backend.Change) *backend.Change {
	w.single[0] = c
	p.Core.Poller.Poll(w.single[:], nil)
	return &w.single[0]
}

// flush applies the changes of the batch and sets their entries' Results, in order. Afterwards no
// slot is locked.
func (p *Port) flush(w *Call) {
	p.commit(w)
	for n := len(w.redo); n > 0; n = len(w.redo) {
		again := w.redo[n-1]
		w.redo[n-1] = redo{}
		w.redo = w.redo[:n-1]
		p.apply(w, &again.Entry, again.at)
		p.commit(w)
	}
}

// Complete flushes, counts, and ends the use of the sockets that the entries named. The last use of
// a closed socket closes it, for which the port must lock its slot (sockClosing); so no slot may be
// locked here.
func (p *Port) Complete(w *Call) {
	p.flush(w)
	if w.saved > 0 {
		w.stripe.saved.Add(w.saved)
		w.saved = 0
	}
	for i, t := range w.used {
		t.Done()
		w.used[i] = nil
	}
	w.used = w.used[:0]
}

func (p *Port) commit(w *Call) {
	b := &w.batch
	if b.n == 0 {
		return
	}
	n := b.n
	b.n = 0
	p.Core.Poller.Poll(b.changes[:n], nil)
	for i := range n {
		it := &b.items[i]
		p.settle(w, it, &b.changes[i])
		it.slot.Mu.Unlock()
		*it = item{} // its Entry points into the caller's slice
	}
}

// settle sets the Result of an entry of the batch. The slot is locked.
func (p *Port) settle(w *Call, it *item, c *backend.Change) {
	s, r := it.slot, &it.Entry
	if r.Result == nil {
		switch {
		case c.Status == backend.Absent, c.Status == backend.Bad:
			p.end(s, it.index)
		case c.Status == backend.Refused:
			p.recheckAfter(recheckDelay, it.index, 0)
		}
		return
	}
	switch c.Status {
	case backend.Done:
		p.settled(w, it)
		return
	case backend.Absent:
		// The number names another socket: the old registration has ended.
		p.lose(w, it)
		if r.Op == OpEnable {
			w.redo = append(w.redo, redo{*r, c.Handle})
			return
		}
		p.Core.releaseHandle(it.index)
		p.fail(r, c.Handle, ErrNotRegistered, c.Err)
	case backend.Bad:
		p.lose(w, it)
		p.Core.releaseHandle(it.index)
		p.fail(r, c.Handle, ErrBadSocket, c.Err)
	default:
		// The backend still has the old token. Restore the word and recheck the slot: reports that
		// came under the new epoch were dropped as stale.
		s.update(func(v uint64) uint64 { return it.was&^wRecheck | v&wRecheck | wPending })
		p.Recheck(s, it.index)
		p.fail(r, c.Handle, nil, c.Err)
	}
}

// settled completes a change that the backend has made.
func (p *Port) settled(w *Call, it *item) {
	s, r := it.slot, &it.Entry
	switch r.Op {
	case OpRemove:
		rec := s.Reg.Load()
		p.release(s, it.was, it.index, true)
		p.Core.releaseHandle(it.index)
		if w.deregisters {
			w.deregistered = rec
			w.stripe.removals.Add(1)
		} else {
			p.typed.Enqueue(Packet{Rec: rec, Events: EventRemove, Kind: Removed})
		}
	case OpEnable:
		p.own(r)
		if r.Conn != nil && (it.was&wConn == 0 || !w.held) {
			s.update(func(v uint64) uint64 { return v | wConn })
			p.conns.hold(r.Conn, w.raw, it.index)
		}
	}
}

// lose ends the registration of an entry whose change found the socket gone. OpRemove has changed
// the word already.
func (p *Port) lose(w *Call, it *item) {
	if it.Op == OpRemove {
		p.release(it.slot, it.was, it.index, false)
		return
	}
	p.forget(it.slot, it.index)
}
