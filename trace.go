package socknotify

import (
	"strconv"
	"sync/atomic"
	"time"
)

// TraceKind says what a [TraceEntry] is about.
type TraceKind uint8

// The kinds.
const (
	// TraceNotified is a notification that a call dequeued.
	TraceNotified TraceKind = iota
	// TraceAccepted is a connection, or a failure, that Port.Accept delivered.
	TraceAccepted
	// TraceRegistered is the beginning of a registration.
	TraceRegistered
	// TraceRemoved is the end of a registration by OpRemove: its EventRemove is queued, or taken.
	TraceRemoved
	// TraceLost is the end of a registration whose socket was closed (G9).
	TraceLost
	// TracePosted is a post that a call dequeued.
	TracePosted
	// TraceCompleted is a completion of an overlapped operation on a socket.
	TraceCompleted
)

// String names the kind.
func (k TraceKind) String() string {
	names := [...]string{"notified", "accepted", "registered", "removed", "lost", "posted", "completed"}
	if int(k) < len(names) {
		return names[k]
	}
	return strconv.Itoa(int(k))
}

// MarshalText is String.
func (k TraceKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A TraceEntry is one thing that a port did.
type TraceEntry struct {
	Time   time.Time // to the millisecond
	Kind   TraceKind
	Socket Socket  // 0 for a post
	ID     uint64  // of the registration, as in RegistrationInfo; 0 for a post
	Events Events  // of a notification
	Data   uintptr // of a post
}

// A Trace reads what a port does as it happens ([Port.Trace]). Its Read and Lost are for one goroutine.
type Trace struct {
	ring *ring // nil where the port was closed already
	stop func()
	next uint64
	lost uint64
	// stuck is since when the next entry has been found not to be there yet.
	stuck time.Time
}

// Close ends the trace. It may be called more than once, and by any goroutine.
func (t *Trace) Close() { t.stop() }

// Read copies entries that have not been read yet, the oldest first, and returns how many. It does not
// wait: with none to be had it returns 0. Nothing is added after the port's or the trace's own Close.
func (t *Trace) Read(into []TraceEntry) int {
	r, n := t.ring, 0
	if r == nil {
		return 0
	}
	for head := r.head.Load(); n < len(into) && t.next != head; t.next++ {
		if head-t.next > ringSize {
			t.lost += head - ringSize - t.next
			t.next = head - ringSize
		}
		switch r.cells[t.next%ringSize].read(t.next, &into[n]) {
		case cellRead:
			n++
		case cellLost:
			t.lost++
		case cellBusy:
			// It is being written, or was given up.
			if t.stuck.IsZero() {
				t.stuck = time.Now()
			}
			if time.Since(t.stuck) < givenUp {
				return n
			}
			t.lost++
		}
		t.stuck = time.Time{}
	}
	return n
}

// Lost is how many entries were written over, or given up, before they were read.
func (t *Trace) Lost() uint64 { return t.lost }

// givenUp is how long an entry may be under way.
const givenUp = time.Second

// trace adds an entry to the ring, if somebody traces.
func (o *observer) trace(at int64, kind TraceKind, index uint32, id uint64, e Events, data uintptr) {
	if r := o.ring.Load(); r != nil {
		r.add(uint64(at)<<16|uint64(kind)<<8|uint64(e&0xff), uint64(index), id, uint64(data))
	}
}

const ringSize = 4096

// A ring holds the latest entries. Nobody waits in it: a writer that finds its cell in another's hands, a
// whole ring ahead or behind, gives its entry up.
type ring struct {
	head  atomic.Uint64 // entries ever begun
	cells [ringSize]cell
}

// A cell holds the entry with number state/2 - 1; an odd state says that it is being written.
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
	cellLost           // written over
	cellBusy           // not there yet, or given up
)

// read copies the entry with a number. It is whole if the state was the same before and after.
func (c *cell) read(n uint64, e *TraceEntry) cellState {
	done := 2*n + 2
	state := c.state.Load()
	if state == done {
		what := c.what.Load()
		*e = TraceEntry{
			Time:   time.UnixMilli(int64(what >> 16)),
			Kind:   TraceKind(what >> 8),
			Events: Events(what & 0xff),
			Socket: Socket(c.socket.Load()),
			ID:     c.id.Load(),
			Data:   uintptr(c.datum.Load()),
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

// tracePosts traces the posts among what was taken from the queue.
//
//go:noinline
func tracePosts[K comparable](o *observer, taken []Notification[K]) {
	if o.ring.Load() == nil {
		return
	}
	at := millis()
	for i := range taken {
		if taken[i].kind == posted {
			o.trace(at, TracePosted, 0, 0, EventNone, taken[i].Data)
		}
	}
}
