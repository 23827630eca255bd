package port

import (
	"sync"
	"sync/atomic"
	"time"
)

// An Observer is what a port records while somebody observes. It has no key and leads to no port.
type Observer struct {
	since time.Time
	ids   *atomic.Uint64
	pages pages[seenPage]
	Ring  atomic.Pointer[Ring]
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
func (o *Observer) of(index uint32) *seen {
	cell := o.cell(index)
	for {
		if s := cell.Load(); s != nil {
			return s
		}
		cell.CompareAndSwap(nil, &seen{id: o.ids.Add(1)})
	}
}

// begin is for a registration that is about to begin.
func (o *Observer) begin(index uint32) {
	s := &seen{id: o.ids.Add(1), since: Millis()}
	o.cell(index).Store(s)
	o.Trace(s.since, traceRegistered, index, s.id, 0, 0)
}

// finish is for one that has ended.
func (o *Observer) finish(index uint32, kind traceKind) {
	if s := o.cell(index).Swap(nil); s != nil {
		o.Trace(Millis(), kind, index, s.id, 0, 0)
	}
}

// note records a notification.
func (o *Observer) note(s *seen, at int64, index uint32, e Events, kind traceKind) {
	s.count.Add(1)
	s.last.Store(uint64(at)<<8 | uint64(e&0xff))
	if o.Ring.Load() != nil {
		o.Trace(at, kind, index, s.id, e, 0)
	}
}

// Millis is the time in Unix milliseconds. A clock that a timer advances would be cheaper to read, but its timer
// wakes threads, some ten system calls each time.
func Millis() int64 { return time.Now().UnixMilli() }

func (o *Observer) cell(index uint32) *atomic.Pointer[seen] {
	at := int(index / pageSize)
	pg := o.pages.lookup(at)
	if pg == nil {
		pg = o.pages.make(at)
	}
	return &pg[index%pageSize]
}

// A watch counts who observes a port.
type watch struct {
	Mu       sync.Mutex
	watchers int
	tracers  int
	ids      atomic.Uint64
	Over     bool // the port is closed
}

// begin counts somebody in and returns the ring, if there is one. It is nil where the port is closed.
func (v *watch) begin(c *Core, tracing bool) *Ring {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	if v.Over {
		return nil
	}
	if v.watchers++; v.watchers == 1 {
		c.Observer.Store(&Observer{since: time.Now(), ids: &v.ids})
	}
	o := c.Observer.Load()
	if tracing {
		if v.tracers++; v.tracers == 1 {
			o.Ring.Store(new(Ring))
		}
	}
	return o.Ring.Load()
}

func (v *watch) end(c *Core, tracing bool) {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	if v.Over {
		return
	}
	if tracing {
		if v.tracers--; v.tracers == 0 {
			c.Observer.Load().Ring.Store(nil)
		}
	}
	if v.watchers--; v.watchers == 0 {
		c.Observer.Store(nil)
	}
}

// close ends every observation, for good.
func (v *watch) close(c *Core) {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.Over = true
	c.Observer.Store(nil)
}

// Observe has the port record notifications until stop is called, which may be done more than once.
func (p *Port) Observe() (stop func()) {
	c := p.Core
	c.Watch.begin(c, false)
	return sync.OnceFunc(func() { c.Watch.end(c, false) })
}
