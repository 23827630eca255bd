package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/sparse"
)

// A recorder is a port.Observer: it records what a port notifies. It has no key and leads to no
// port.
type recorder struct {
	since time.Time
	pages sparse.Pages[page]
	ring  atomic.Pointer[ring]
	// watchers counts all that observe the port, and tracers those of them that trace it.
	watchers, tracers int // guarded by mu
}

// mu guards the beginning and the end of every observation.
var mu sync.Mutex

// ids is the latest ID of a registration. IDs are unique in the process.
var ids atomic.Uint64

const pageSize = 64

// A page holds records by slot.
type page [pageSize]atomic.Pointer[record]

// A record is that of one registration while it lasts.
type record struct {
	id    uint64
	since int64 // Unix milliseconds; 0 if it is older than the observation
	count atomic.Uint64
	last  atomic.Uint64 // Unix milliseconds above, events in the eight bits below; 0: never
}

func (r *recorder) cell(index uint32) *atomic.Pointer[record] {
	return &r.pages.At(int(index / pageSize))[index%pageSize]
}

// of returns the record of a slot's registration, which is made if there is none. A caller that
// finds the same epoch in the slot's word before and after has the record of the registration in
// that word, because a new record is stored before the word says registered.
func (r *recorder) of(index uint32) *record {
	cell := r.cell(index)
	for {
		if s := cell.Load(); s != nil {
			return s
		}
		cell.CompareAndSwap(nil, &record{id: ids.Add(1)})
	}
}

// Seen returns the record of a slot's registration.
func (r *recorder) Seen(index uint32) port.Seen { return r.of(index) }

// Registered makes the record of a registration that is about to begin.
func (r *recorder) Registered(index uint32) {
	s := &record{id: ids.Add(1), since: port.Millis()}
	r.cell(index).Store(s)
	r.trace(s.since, traceRegistered, index, s.id, 0, 0)
}

// Ended ends the record of a registration.
func (r *recorder) Ended(index uint32, removed bool) {
	if s := r.cell(index).Swap(nil); s != nil {
		kind := traceLost
		if removed {
			kind = traceRemoved
		}
		r.trace(port.Millis(), kind, index, s.id, 0, 0)
	}
}

// kinds are the kinds of trace entries for those of notifications.
var kinds = [...]traceKind{
	port.FromSocket: traceNotified, port.Completion: traceCompleted,
	port.Connection: traceAccepted, port.NoConnection: traceAccepted,
}

// Notified records a notification.
func (r *recorder) Notified(
	seen port.Seen, at int64, index uint32, e port.Events, kind port.NoteKind,
) {
	s := seen.(*record)
	s.count.Add(1)
	s.last.Store(uint64(at)<<8 | uint64(e&0xff))
	r.trace(at, kinds[kind], index, s.id, e, 0)
}

// Posted traces a post that was dequeued.
func (r *recorder) Posted(at int64, data uintptr) {
	r.trace(at, tracePosted, 0, 0, port.EventNone, data)
}

// trace adds an entry to the ring, if the port is traced.
func (r *recorder) trace(
	at int64, kind traceKind, index uint32, id uint64, e port.Events, data uintptr,
) {
	if ring := r.ring.Load(); ring != nil {
		ring.add(uint64(at)<<16|uint64(kind)<<8|uint64(e&0xff), uint64(index), id, uint64(data))
	}
}

// recorderOf returns the recorder of a port, or nil if the port is not observed.
func recorderOf(c *port.Core) *recorder {
	if o := c.Observer.Load(); o != nil {
		return (*o).(*recorder)
	}
	return nil
}

// begin counts an observer in. It returns nil if the port is closed.
func begin(c *port.Core, tracing bool) *recorder {
	mu.Lock()
	defer mu.Unlock()
	if !c.Enter() { // otherwise the port ends the observation after this call
		return nil
	}
	defer c.Leave()
	r := recorderOf(c)
	if r == nil {
		r = &recorder{since: time.Now()}
		var o port.Observer = r
		c.Observer.Store(&o)
	}
	r.watchers++
	if tracing {
		if r.tracers++; r.tracers == 1 {
			r.ring.Store(new(ring))
		}
	}
	return r
}

// end returns the function that counts the observer out. It may be called more than once.
func (r *recorder) end(c *port.Core, tracing bool) func() {
	return sync.OnceFunc(func() {
		if r == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if tracing {
			if r.tracers--; r.tracers == 0 {
				r.ring.Store(nil)
			}
		}
		if r.watchers--; r.watchers == 0 {
			c.Observer.Store(nil)
		}
	})
}

// Start makes a port record notifications until stop is called, or the port is closed. stop may be
// called more than once.
func Start(p *port.Port) (stop func()) {
	return begin(p.Core, false).end(p.Core, false)
}
