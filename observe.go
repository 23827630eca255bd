package socknotify

import (
	"runtime"
)

// Observe has the port record, until stop is called or the port is closed, what each registration is
// notified of: how often, of what last, and when. [Port.Snapshot] tells. The clock is read once for all that
// one look at the kernel brings.
//
// Several may observe at once; counts begin with the first and end with the last. A port that nobody
// observes records nothing, and its hot path pays one load of a pointer for each look at the kernel. What
// is recorded holds no key (X7). stop may be called more than once.
func (p *Port[K]) Observe() (stop func()) {
	return p.port.Observe()
}

// Trace has the port keep what it does about registrations and posts, until the trace is closed or the port
// is: the latest few thousand entries, for whoever reads them in time. It observes too, as
// [Port.Observe] does.
func (p *Port[K]) Trace() *Trace {
	t := &Trace{p.port.StartTrace()}
	runtime.KeepAlive(p)
	return t
}
