package port

import (
	"sync"
	"sync/atomic"
	"time"
)

// A traceKind is the kind of a trace entry. Package debug documents the values.
type traceKind uint8

const (
	TraceNotified traceKind = iota
	traceAccepted
	traceRegistered
	traceRemoved
	traceLost
	TracePosted
	traceCompleted
)

// A traceEntry is one thing that a port did.
type traceEntry struct {
	At     int64 // Unix milliseconds
	Kind   traceKind
	Handle Socket
	Id     uint64
	Events Events
	Data   uintptr
}

// A TraceReader reads the ring of a port. It may be used by one goroutine at a time, except for Stop.
type TraceReader struct {
	ring *Ring // nil if the port was closed already
	Stop func()
	next uint64
	Lost uint64
	// stuck is the time at which the next entry was first found incomplete.
	stuck time.Time
}

// StartTrace makes the port keep a ring of entries until the reader stops.
func (p *Port) StartTrace() *TraceReader {
	c := p.Core
	r := c.Watch.begin(c, true)
	t := &TraceReader{ring: r, Stop: sync.OnceFunc(func() { c.Watch.end(c, true) })}
	if r != nil {
		t.next = r.head.Load()
	}
	return t
}

// Read returns the oldest unread entry, if there is one.
func (t *TraceReader) Read() (e traceEntry, ok bool) {
	r := t.ring
	if r == nil {
		return e, false
	}
	for head := r.head.Load(); t.next != head; t.next++ {
		if head-t.next > ringSize {
			t.Lost += head - ringSize - t.next
			t.next = head - ringSize
		}
		switch r.cells[t.next%ringSize].read(t.next, &e) {
		case cellRead:
			t.stuck = time.Time{}
			t.next++
			return e, true
		case cellLost:
			t.Lost++
		case cellBusy:
			// The entry is being written, or its writer gave up.
			if t.stuck.IsZero() {
				t.stuck = time.Now()
			}
			if time.Since(t.stuck) < givenUp {
				return e, false
			}
			t.Lost++
		}
		t.stuck = time.Time{}
	}
	return e, false
}

// givenUp is the time after which an incomplete entry is skipped.
const givenUp = time.Second

// Trace adds an entry to the ring, if the port is traced.
func (o *Observer) Trace(at int64, kind traceKind, index uint32, id uint64, e Events, data uintptr) {
	if r := o.Ring.Load(); r != nil {
		r.add(uint64(at)<<16|uint64(kind)<<8|uint64(e&0xff), uint64(index), id, uint64(data))
	}
}

const ringSize = 4096

// A Ring holds the latest entries. No writer waits: one that finds its cell in use by another, which is a whole ring ahead
// or behind, drops its entry.
type Ring struct {
	head  atomic.Uint64 // number of entries begun
	cells [ringSize]cell
}

// A cell holds the entry with the number state/2 - 1. An odd state means that the entry is being written.
type cell struct {
	state                   atomic.Uint64
	what, socket, id, datum atomic.Uint64
}

func (r *Ring) add(what, socket, id, datum uint64) {
	n := r.head.Add(1) - 1
	c := &r.cells[n%ringSize]
	was := c.state.Load()
	busy := 2*n + 1
	if was&1 != 0 || was > busy || !c.state.CompareAndSwap(was, busy) {
		return
	}
	c.what.Store(what)
	c.socket.Store(socket)
	c.id.Store(id)
	c.datum.Store(datum)
	c.state.Store(busy + 1)
}

type cellState int

const (
	cellRead cellState = iota
	cellLost           // overwritten
	cellBusy           // incomplete
)

// read copies the entry with a number. The copy is whole if the state is the same before and after.
func (c *cell) read(n uint64, e *traceEntry) cellState {
	done := 2*n + 2
	state := c.state.Load()
	if state == done {
		what := c.what.Load()
		*e = traceEntry{
			At: int64(what >> 16), Kind: traceKind(what >> 8), Events: Events(what & 0xff),
			Handle: Socket(c.socket.Load()), Id: c.id.Load(), Data: uintptr(c.datum.Load()),
		}
		if c.state.Load() == done {
			return cellRead
		}
		return cellLost
	}
	if state > done {
		return cellLost
	}
	return cellBusy
}
