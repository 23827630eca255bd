package debug

import (
	"strconv"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/port"
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
	Socket uintptr           // 0 for a post
	ID     uint64            // of the registration, as in RegistrationInfo; 0 for a post
	Events socknotify.Events // of a notification
	Data   uintptr           // of a post
}

// A Trace reads entries of a port while the port adds them ([StartTrace]). Its Read and Lost are for one goroutine.
type Trace struct{ reader *port.TraceReader }

// StartTrace has a port keep what it does about registrations and posts, until the trace is closed or the port
// is. The port keeps the latest few thousand entries; older ones are written over. It also observes the port, as
// [Observe] does.
func StartTrace[K comparable](p *socknotify.Port[K]) *Trace { return &Trace{port.Of(p).StartTrace()} }

// Close ends the trace. It may be called more than once, and by any goroutine.
func (t *Trace) Close() { t.reader.Stop() }

// Read copies entries that have not been read yet, the oldest first, and returns how many. It does not
// wait: with none to be had it returns 0. Nothing is added after the port's or the trace's own Close.
func (t *Trace) Read(into []TraceEntry) int {
	for n := range into {
		e, ok := t.reader.Read()
		if !ok {
			return n
		}
		into[n] = TraceEntry{
			Time: time.UnixMilli(e.At), Kind: TraceKind(e.Kind), Socket: e.Handle, ID: e.Id, Events: socknotify.Events(e.Events), Data: e.Data,
		}
	}
	return len(into)
}

// Lost returns how many entries were written over, or given up, before they were read.
func (t *Trace) Lost() uint64 { return t.reader.Lost }
