package port

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// Typed is what the port needs of a Port[K], because the port itself does not know the type of the keys. A record is
// allocated with its key behind it, so a pointer to the record leads to the key.
type Typed interface {
	// Put writes a notification into entry i. The record of a completion gives up its key.
	Put(to Entries, i int, pk Packet)
	// Enqueue appends a notification to the queue, unless the queue is closed.
	Enqueue(pk Packet)
	// TakeQueued moves the oldest queued notifications into entries, ends the operations whose completions are among
	// them, and returns the counts.
	TakeQueued(to Entries) (n, posts, completions int)
	// Get returns the kind, the events and the data of entry i.
	Get(from Entries, i int) (kind NoteKind, e Events, data uintptr)

	// Fail returns the error of an entry: a kind of this package, and a cause. Either may be nil.
	Fail(f Failed) error

	// NewRecord returns a record with a copy of a key. Without a key the record has the zero key.
	NewRecord(key unsafe.Pointer) *Record
	// SameKey reports whether a record has this key.
	SameKey(rec *Record, key unsafe.Pointer) bool
	// CheckKey returns an error for a key that does not equal itself, or whose comparison panics.
	CheckKey(key unsafe.Pointer) error
}

// Failed describes a failed entry.
type Failed struct {
	Op     Op
	Socket Socket
	Conn   bool // the entry named a connection or a socket of package sock
	Accept bool // the entry was made by Port.Accept
	Kind   error
	Err    error
}

// An Entry is a Registration without its key type.
type Entry struct {
	Handle Socket
	Conn   syscall.Conn
	FD     *fdstate.FD // of a socket of package sock, where Conn is nil
	Work   *Work       // of Port.Accept, or of a socket with operations
	Key    unsafe.Pointer
	Result *error // nil: a recheck, which has no Result

	Filter  Events
	Op      Op
	Trigger Trigger
	Drained bool
}

const (
	knownOps      = OpEnable | OpDisable | OpRemove
	knownTriggers = TriggerOneShot | TriggerPersistent | TriggerLevel | TriggerEdge
)

// soundTriggers has a bit for each valid trigger: level or edge, and at most one of one-shot and persistent.
const soundTriggers = 1<<TriggerLevel | 1<<TriggerEdge |
	1<<(TriggerLevel|TriggerOneShot) | 1<<(TriggerEdge|TriggerOneShot) |
	1<<(TriggerLevel|TriggerPersistent) | 1<<(TriggerEdge|TriggerPersistent)

// sound reports whether a registration may have a filter and a trigger.
func sound(filter Events, trigger Trigger) bool {
	return filter&^EventsAll == 0 && 1<<trigger&soundTriggers != 0
}

// check returns an error for the first field that is invalid. It looks at no socket (G6, G7).
func (r *Entry) check() error {
	switch r.Op {
	case OpNone, OpDisable, OpRemove:
		return nil
	case OpEnable:
	default:
		if r.Op&^knownOps != 0 {
			return Invalid("Op", "unknown bits", r.Op)
		}
		return Invalid("Op", "more than one operation", r.Op)
	}
	if r.Filter&^EventsAll != 0 {
		if r.Filter&(EventErr|EventRemove) != 0 {
			return Invalid("Filter", "ERR and REMOVE are always on", r.Filter)
		}
		return Invalid("Filter", "unknown bits", r.Filter)
	}
	t := r.Trigger
	switch {
	case 1<<t&soundTriggers != 0:
	case t&^knownTriggers != 0:
		return Invalid("Trigger", "unknown bits", t)
	case t&(TriggerLevel|TriggerEdge) == 0:
		return Invalid("Trigger", "neither level nor edge", t)
	case t&(TriggerLevel|TriggerEdge) == TriggerLevel|TriggerEdge:
		return Invalid("Trigger", "both level and edge", t)
	default:
		return Invalid("Trigger", "both one-shot and persistent", t)
	}
	return nil
}

// An Observer records what a port does; package observe has it. The port calls it only while it is
// observed.
type Observer interface {
	// Registered and Ended record that the registration of a slot is about to begin, and has ended.
	Registered(index uint32)
	Ended(index uint32, removed bool)
	// Seen returns the record of a slot's present registration, for Notified.
	Seen(index uint32) Seen
	Notified(seen Seen, at int64, index uint32, e Events, kind NoteKind)
	// Posted records a post that was dequeued.
	Posted(at int64, data uintptr)
}

// Seen is what an Observer has of a registration.
type Seen any

// Millis returns the time in Unix milliseconds. A clock advanced by a timer would be cheaper to
// read, but its timer wakes threads, with some ten system calls each time.
func Millis() int64 { return time.Now().UnixMilli() }
