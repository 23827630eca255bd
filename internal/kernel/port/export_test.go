package port

// What tests of other packages' ports, which need the public API, see of this package.

const (
	Asked    = asked
	WEnabled = wEnabled
	WRecheck = wRecheck
)

// Enqueue queues a post and wakes no waiter.
func (p *Port) Enqueue() { p.typed.Enqueue(Packet{Rec: p.typed.NewRecord(nil), Kind: Posted}) }

// Dequeue dequeues without waiting, and without the lock of levels if once.
func (p *Port) Dequeue(w *Call, out Entries, once bool) int {
	if once {
		return p.dequeueOnce(w, out)
	}
	return p.dequeue(w, out)
}

// Join adds a call to the waiters. lead reports whether it is the leader.
func (p *Port) Join(w *Call) (lead bool) {
	lead, _ = p.Waiters.add(&w.waiter)
	return lead
}

// Quit removes a call that does not wait again from the waiters.
func (p *Port) Quit(w *Call) { p.Waiters.leave(&w.waiter, true) }

// Chosen reports whether a waiter is chosen to be woken, and whether that is w.
func (p *Port) Chosen(w *Call) (any, it bool) {
	c := p.Waiters.chosen.Load()
	return c != nil, w != nil && c == &w.waiter
}

// Led reports whether there is a leader.
func (p *Port) Led() bool { return p.Waiters.leader.Load() != nil }

var (
	Directions = directions
	SameEpoch  = sameEpoch
)

// State returns the state word.
func (s *Slot) State() uint64 { return s.word.Load() }

// Helping reports whether the helper leads.
func (p *Port) Helping() bool { return p.Waiters.helping() }

// NeededHelper reports whether the helper's timer has ever been started.
func (p *Port) NeededHelper() bool { return p.Core.helper.timer != nil }
