package observe

import (
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// A traceKind is the kind of a trace entry. Package debug documents the values.
type traceKind uint8

const (
	traceNotified traceKind = iota
	traceAccepted
	traceRegistered
	traceRemoved
	traceLost
	tracePosted
	traceCompleted
)

// A traceEntry is one thing that a port did.
type traceEntry struct {
	At     int64 // Unix milliseconds
	Kind   traceKind
	Handle port.Socket
	ID     uint64
	Events port.Events
	Data   uintptr
}

// A TraceReader reads the ring of a port. It may be used by one goroutine at a time, except for
// Stop.
type TraceReader struct {
	ring *ring // nil if the port was closed already
	Stop func()
	next uint64
	Lost uint64
	// stuck is the time at which the next entry was first found incomplete.
	stuck time.Time
}

// StartTrace makes a port keep a ring of entries until the reader stops.
func StartTrace(p *port.Port) *TraceReader {
	r := begin(p.Core, true)
	t := &TraceReader{Stop: r.end(p.Core, true)}
	if r != nil {
		t.ring = r.ring.Load()
		t.next = t.ring.head.Load()
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

const ringSize = 4096

// A ring holds the latest entries. No writer waits: one that finds its cell in use by another,
// which is a whole ring ahead or behind, drops its entry.
type ring struct {
	head  atomic.Uint64 // number of entries begun
	cells [ringSize]cell
}

// A cell holds the entry with the number state/2 - 1. An odd state means that the entry is being
// written.
type cell struct {
	state                   atomic.Uint64
	what, socket, id, datum atomic.Uint64
}

func (r *ring) add(what, socket, id, datum uint64) {
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
			At: int64(what >> 16), Kind: traceKind(what >> 8), Events: port.Events(what & 0xff),
			Handle: port.Socket(c.socket.Load()), ID: c.id.Load(), Data: uintptr(c.datum.Load()),
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
