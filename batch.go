package socknotify

import "github.com/socknotify/socknotify/internal/kernel"

// A batch is the changes that have been made to slots but not yet to the kernel. It holds the lock of
// every slot in it, until flush. Because others may hold theirs and want ours, nobody waits for a
// slot's lock before having flushed (see acquire).
type batch struct {
	n       int
	changes [batchSize]kernel.Change
	items   [batchSize]item
}

const batchSize = 32

// An item is what is to be done with a change's outcome.
type item struct {
	entry
	slot  *slot
	was   uint64 // the word before
	index uint32
}

// acquire locks a slot.
func (p *port) acquire(w *call, s *slot) {
	if !s.mu.TryLock() {
		p.flush(w)
		s.mu.Lock()
	}
}

// add puts a change and the lock of its slot into the batch.
func (p *port) add(w *call, it item, c kernel.Change) {
	b := &w.batch
	b.changes[b.n], b.items[b.n] = c, it
	if b.n++; b.n == batchSize {
		p.flush(w)
	}
}

// flush makes the batch's changes and settles each with its outcome, in order. Afterwards no slot is locked.
func (p *port) flush(w *call) {
	p.commit(w)
	for n := len(w.redo); n > 0; n = len(w.redo) {
		again := w.redo[n-1]
		w.redo[n-1] = redo{}
		w.redo = w.redo[:n-1]
		p.apply(w, &again.entry, again.at)
		p.commit(w)
	}
}

// complete flushes, counts, and ends the use of the sockets that the entries were for. Whichever use was the last of
// a closed socket closes it, for which the port must lock its slot (sockClosing).
func (p *port) complete(w *call) {
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

// A redo is an entry whose registration turned out to have ended. It is processed anew once the batch's
// slots are free, because it may have to wait for another port.
type redo struct {
	entry
	at Socket
}

func (p *port) commit(w *call) {
	b := &w.batch
	if b.n == 0 {
		return
	}
	n := b.n
	b.n = 0
	p.core.kernel.Poll(b.changes[:n], nil)
	for i := range n {
		it := &b.items[i]
		p.settle(w, it, &b.changes[i])
		it.slot.mu.Unlock()
		*it = item{} // it points into the caller's slice
	}
}

// settle gives an entry of the batch its Result, under the slot's lock.
func (p *port) settle(w *call, it *item, c *kernel.Change) {
	s, r := it.slot, &it.entry
	if r.result == nil {
		switch {
		case c.Status == kernel.Absent, c.Status == kernel.Bad:
			p.forget(w.stripe, s, it.index)
			p.core.unclaim(it.index)
		case c.Status == kernel.Refused:
			p.later(longWhile, it.index)
		}
		return
	}
	switch c.Status {
	case kernel.Done:
		p.settled(w, it)
		return
	case kernel.Absent:
		// The number names another socket: the old registration has ended.
		p.lose(w, it)
		if r.op == OpEnable {
			w.redo = append(w.redo, redo{*r, c.Handle})
			return
		}
		p.core.unclaim(it.index)
		*r.result = r.fail(c.Handle, ErrNotRegistered, c.Err)
	case kernel.Bad:
		p.lose(w, it)
		p.core.unclaim(it.index)
		*r.result = r.fail(c.Handle, ErrBadSocket, c.Err)
	default:
		// The kernel still has the old token. Put the word back, and have the kernel asked again:
		// what it reported meanwhile was dropped as stale, whoever it woke.
		v, _ := s.update(func(v uint64) uint64 { return it.was | wPending | wRelook })
		if v&wRelook == 0 {
			p.pushRelook(s, it.index)
		}
		p.parking.wakeOne(p.core, nil)
		*r.result = r.fail(c.Handle, nil, c.Err)
	}
}

// settled does what follows from a change that the kernel has made.
func (p *port) settled(w *call, it *item) {
	s, r := it.slot, &it.entry
	switch r.op {
	case OpRemove:
		rec := s.reg.Load()
		p.release(w.stripe, s, it.was, it.index, TraceRemoved)
		p.core.unclaim(it.index)
		if w.takes {
			w.taken = rec
			w.stripe.removals.Add(1)
		} else {
			p.typed.enqueue(packet{rec: rec, events: EventRemove})
		}
	case OpEnable:
		p.own(r)
		if r.conn != nil && (it.was&wConn == 0 || !w.held) {
			s.update(func(v uint64) uint64 { return v | wConn })
			p.conns.hold(r.conn, w.raw, it.index)
		}
	}
}

// lose ends the registration of an entry whose change found the socket gone. OpRemove has ended it
// in the word already.
func (p *port) lose(w *call, it *item) {
	if it.op == OpRemove {
		p.release(w.stripe, it.slot, it.was, it.index, TraceLost)
		return
	}
	p.forget(w.stripe, it.slot, it.index)
}
