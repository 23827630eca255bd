package port

import (
	"sync"
	"sync/atomic"
	"time"
)

// An Observer records what a port notifies. It has no key and leads to no port.
type Observer struct {
	since time.Time
	ids   *atomic.Uint64
	pages pages[seenPage]
	Ring  atomic.Pointer[Ring]
}

// A seenPage holds a record for each slot of a page.
type seenPage [pageSize]atomic.Pointer[seen]

// A seen is the record of one registration while it lasts.
type seen struct {
	id    uint64 // unique among the registrations of the port
	since int64  // Unix milliseconds; 0 if it is older than the observation
	count atomic.Uint64
	last  atomic.Uint64 // Unix milliseconds above, events in the eight bits below; 0: never
}

// of returns the record of a slot's registration, which is made if there is none. A caller that finds the same epoch in the
// slot's word before and after has the record of the registration in that word, because create stores a new record before
// the word says registered.
func (o *Observer) of(index uint32) *seen {
	cell := o.cell(index)
	for {
		if s := cell.Load(); s != nil {
			return s
		}
		cell.CompareAndSwap(nil, &seen{id: o.ids.Add(1)})
	}
}

// begin makes the record of a registration that is about to begin.
func (o *Observer) begin(index uint32) {
	s := &seen{id: o.ids.Add(1), since: Millis()}
	o.cell(index).Store(s)
	o.Trace(s.since, traceRegistered, index, s.id, 0, 0)
}

// finish ends the record of a registration.
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

// Millis returns the time in Unix milliseconds. A clock advanced by a timer would be cheaper to read, but its timer wakes
// threads, with some ten system calls each time.
func Millis() int64 { return time.Now().UnixMilli() }

func (o *Observer) cell(index uint32) *atomic.Pointer[seen] {
	at := int(index / pageSize)
	pg := o.pages.lookup(at)
	if pg == nil {
		pg = o.pages.make(at)
	}
	return &pg[index%pageSize]
}

// A watch counts the observers of a port.
type watch struct {
	Mu       sync.Mutex
	watchers int
	tracers  int
	ids      atomic.Uint64
	Over     bool // the port is closed
}

// begin counts an observer in and returns the ring, if there is one. It returns nil if the port is closed.
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

// close ends every observation.
func (v *watch) close(c *Core) {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.Over = true
	c.Observer.Store(nil)
}

// Observe makes the port record notifications until stop is called. stop may be called more than once.
func (p *Port) Observe() (stop func()) {
	c := p.Core
	c.Watch.begin(c, false)
	return sync.OnceFunc(func() { c.Watch.end(c, false) })
}
