package observe

import (
	"time"

	"github.com/socknotify/socknotify/internal/port"
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

// A TraceReader reads the ring of a port. It may be used by one goroutine at a time, except for Stop.
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
