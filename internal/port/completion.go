package port

import "unsafe"

// An outlet is where completions go: into the call's entries, if all earlier completions have been dequeued, and otherwise
// into the queue behind them (O3).
type outlet struct {
	p      *Port
	out    Entries
	n      int
	queued bool
}

// complete completes an operation that has its result and is on no list any more. The lock of its list is held.
func (t *outlet) complete(o *Overlapped) {
	pk := Packet{Rec: o.Rec, Of: unsafe.Pointer(o), Data: uintptr(o.N), Kind: Completion}
	t.observe(o.at.Swap(0))
	// Completions of a socket are queued under its lock, so an empty queue has none of them.
	if t.n < t.out.Len() && !t.p.queue.any() {
		t.p.typed.Put(t.out, t.n, pk) // this also drops the arguments of the operation
		o.End()
		t.n++
		return
	}
	t.queued = true
	t.p.typed.Enqueue(pk)
}

// observe records a completion if the port is observed.
func (t *outlet) observe(at uint32) {
	if ob := t.p.Core.Observer.Load(); ob != nil && at != 0 && at != atFile {
		ob.note(ob.of(at-1), Millis(), at-1, EventNone, traceCompleted)
	}
}
