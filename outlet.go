package socknotify

import "unsafe"

// An outlet is where completions go: into a call's entries, if the operations that were completed earlier have
// all been dequeued, and into the queue, behind those, otherwise (O3).
type outlet[K comparable] struct {
	p      *Port[K]
	out    []Notification[K]
	n      int
	queued bool
}

// complete ends an operation that has its result and is on no list any more. Its place's lock is held.
func (t *outlet[K]) complete(o *Overlapped[K]) {
	nt := Notification[K]{Key: o.key, Data: uintptr(o.n), kind: completion, of: unsafe.Pointer(o)}
	o.forget()
	t.observe(o.at.Swap(0))
	// Completions of one socket are queued under its lock, so none is in a queue that is empty now.
	if t.n < len(t.out) && !t.p.queue.any() {
		o.end()
		t.out[t.n] = nt
		t.n++
		return
	}
	t.queued = true
	t.p.queue.push(nt)
}

// observe records a completion, where somebody observes.
func (t *outlet[K]) observe(at uint32) {
	if ob := t.p.core.observer.Load(); ob != nil && at != 0 && at < atKernel {
		ob.note(ob.of(at-1), millis(), at-1, EventNone, TraceCompleted)
	}
}
