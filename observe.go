package socknotify

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Observe has the port record, until stop is called or the port is closed, what each registration is
// notified of: how often, of what last, and when. [Port.Snapshot] tells. The clock is read once for all that
// one look at the kernel brings.
//
// Several may observe at once; counts begin with the first and end with the last. A port that nobody
// observes records nothing, and its hot path pays one load of a pointer for each look at the kernel. What
// is recorded holds no key (X7). stop may be called more than once.
func (p *Port[K]) Observe() (stop func()) {
	c := p.core
	c.watch.begin(c, false)
	return sync.OnceFunc(func() { c.watch.end(c, false) })
}

// An observer is what a port records while somebody observes. It has no key and leads to no port.
type observer struct {
	since time.Time
	ids   *atomic.Uint64
	pages pages[seenPage]
	ring  atomic.Pointer[ring]
}

// seenPage is to a page of slots what seen is to a slot.
type seenPage [pageSize]atomic.Pointer[seen]

// A seen is what is recorded of one registration, for as long as that lasts.
type seen struct {
	id    uint64 // never that of another registration of the port
	since int64  // Unix milliseconds; 0: it is older than the observation
	count atomic.Uint64
	last  atomic.Uint64 // Unix milliseconds above, events in the eight bits below; 0: never
}

// of is the record of a slot's registration, or what will be. Whoever finds the same epoch in the slot's
// word before and after has that of the registration that the word tells of: create stores a new one
// before the word says registered.
func (o *observer) of(index uint32) *seen {
	cell := o.cell(index)
	for {
		if s := cell.Load(); s != nil {
			return s
		}
		cell.CompareAndSwap(nil, &seen{id: o.ids.Add(1)})
	}
}

// begin is for a registration that is about to begin.
func (o *observer) begin(index uint32) {
	s := &seen{id: o.ids.Add(1), since: millis()}
	o.cell(index).Store(s)
	o.trace(s.since, TraceRegistered, index, s.id, 0, 0)
}

// finish is for one that has ended.
func (o *observer) finish(index uint32, kind TraceKind) {
	if s := o.cell(index).Swap(nil); s != nil {
		o.trace(millis(), kind, index, s.id, 0, 0)
	}
}

// note records a notification.
func (o *observer) note(s *seen, at int64, index uint32, e Events, kind TraceKind) {
	s.count.Add(1)
	s.last.Store(uint64(at)<<8 | uint64(e&0xff))
	if o.ring.Load() != nil {
		o.trace(at, kind, index, s.id, e, 0)
	}
}

// millis is the time in Unix milliseconds. A clock that a timer advances would be cheaper to read, but its timer
// wakes threads, some ten system calls each time.
func millis() int64 { return time.Now().UnixMilli() }

func (o *observer) cell(index uint32) *atomic.Pointer[seen] {
	at := int(index / pageSize)
	pg := o.pages.lookup(at)
	if pg == nil {
		pg = o.pages.make(at)
	}
	return &pg[index%pageSize]
}

// A watch counts who observes a port.
type watch struct {
	mu       sync.Mutex
	watchers int
	tracers  int
	ids      atomic.Uint64
	over     bool // the port is closed
}

// begin counts somebody in and returns the ring, if there is one. It is nil where the port is closed.
func (v *watch) begin(c *core, tracing bool) *ring {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return nil
	}
	if v.watchers++; v.watchers == 1 {
		c.observer.Store(&observer{since: time.Now(), ids: &v.ids})
	}
	o := c.observer.Load()
	if tracing {
		if v.tracers++; v.tracers == 1 {
			o.ring.Store(new(ring))
		}
	}
	return o.ring.Load()
}

func (v *watch) end(c *core, tracing bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	if tracing {
		if v.tracers--; v.tracers == 0 {
			c.observer.Load().ring.Store(nil)
		}
	}
	if v.watchers--; v.watchers == 0 {
		c.observer.Store(nil)
	}
}

// close ends every observation, for good.
func (v *watch) close(c *core) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	c.observer.Store(nil)
}

// Trace has the port keep what it does about registrations and posts, until the trace is closed or the port
// is: the latest few thousand entries, for whoever reads them in time. It observes too, as
// [Port.Observe] does.
func (p *Port[K]) Trace() *Trace {
	c := p.core
	r := c.watch.begin(c, true)
	t := &Trace{ring: r, stop: sync.OnceFunc(func() { c.watch.end(c, true) })}
	if r != nil {
		t.next = r.head.Load()
	}
	runtime.KeepAlive(p)
	return t
}
