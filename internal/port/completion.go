package port

import "unsafe"

// An outlet is where completions go: into a call's entries, if the operations that were completed earlier have
// all been dequeued, and into the queue, behind those, otherwise (O3).
type outlet struct {
	p      *Port
	out    Entries
	n      int
	queued bool
}

// complete ends an operation that has its result and is on no list any more. Its place's lock is held.
func (t *outlet) complete(o *Overlapped) {
	pk := Packet{Rec: o.Rec, Of: unsafe.Pointer(o), Data: uintptr(o.N), Kind: Completion}
	t.observe(o.at.Swap(0))
	// Completions of one socket are queued under its lock, so none is in a queue that is empty now.
	if t.n < t.out.Len() && !t.p.queue.any() {
		t.p.typed.Put(t.out, t.n, pk) // and the operation lets go of its arguments
		o.End()
		t.n++
		return
	}
	t.queued = true
	t.p.typed.Enqueue(pk)
}

// observe records a completion, where somebody observes.
func (t *outlet) observe(at uint32) {
	if ob := t.p.Core.Observer.Load(); ob != nil && at != 0 && at < atKernel {
		ob.note(ob.of(at-1), Millis(), at-1, EventNone, traceCompleted)
	}
}
