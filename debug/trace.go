package debug

import (
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/internal/kernel/port"
)

// TraceKind is the kind of a [TraceEntry].
type TraceKind uint8

// The kinds.
const (
	// TraceNotified means that a call dequeued a notification.
	TraceNotified TraceKind = iota
	// TraceAccepted means that Port.Accept delivered a connection or an error.
	TraceAccepted
	// TraceRegistered means that a registration began.
	TraceRegistered
	// TraceRemoved means that a registration was ended by OpRemove. Its EventRemove is queued or dequeued.
	TraceRemoved
	// TraceLost means that a registration ended because its socket was closed. No EventRemove follows.
	TraceLost
	// TracePosted means that a call dequeued a post.
	TracePosted
	// TraceCompleted means that an overlapped operation on a socket completed.
	TraceCompleted
)

// String returns the name of the kind.
func (k TraceKind) String() string { return nameOf(debugdata.TraceKinds, int(k)) }

// MarshalText returns the name of the kind.
func (k TraceKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A TraceEntry describes one action of a port.
type TraceEntry struct {
	Time   time.Time // to the millisecond
	Kind   TraceKind
	Socket uintptr           // 0 for a post
	ID     uint64            // the registration's ID, as in RegistrationInfo; 0 for a post
	Events socknotify.Events // the events of a notification
	Data   uintptr           // the data of a post
}

// A Trace reads the entries that a port records; see [StartTrace]. Read and Lost must not be called concurrently.
type Trace struct{ reader *observe.TraceReader }

// StartTrace makes a port record its actions on registrations and posts, until the trace or the port is closed. The
// port keeps the latest few thousand entries and overwrites older ones. A trace also observes the port, like
// [Observe].
func StartTrace[K comparable](p *socknotify.Port[K]) *Trace {
	return &Trace{observe.StartTrace(port.Of(p))}
}

// Close ends the trace. It may be called more than once and by any goroutine.
func (t *Trace) Close() { t.reader.Stop() }

// Read copies unread entries to into, oldest first, and returns their number. It does not block; if there are none,
// it returns 0. After Close of the port or the trace no entries are added.
func (t *Trace) Read(into []TraceEntry) int {
	for n := range into {
		e, ok := t.reader.Read()
		if !ok {
			return n
		}
		into[n] = TraceEntry{
			Time: time.UnixMilli(e.At), Kind: TraceKind(e.Kind), Socket: e.Handle, ID: e.ID, Events: socknotify.Events(e.Events), Data: e.Data,
		}
	}
	return len(into)
}

// Lost returns the number of entries that were overwritten or dropped before they were read.
func (t *Trace) Lost() uint64 { return t.reader.Lost }
