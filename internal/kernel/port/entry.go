package port

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// Typed is what the port needs of a Port[K], because the port itself does not know the type of the
// keys. A record is allocated with its key behind it, so a pointer to the record leads to the key.
type Typed interface {
	// Put writes a notification into entry i. The record of a completion gives up its key.
	Put(to Entries, i int, pk Packet)
	// Enqueue appends a notification to the queue, unless the queue is closed.
	Enqueue(pk Packet)
	// TakeQueued moves the oldest queued notifications into entries, ends the operations whose
	// completions are among them, and returns the counts.
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

// soundTriggers has a bit for each valid trigger: level or edge, and at most one of one-shot and
// persistent.
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

// A Record is what a registration has besides the word and the key (see Keyed). It is replaced,
// never changed.
type Record struct {
	fd   *fdstate.FD // of a socket of package sock, or nil
	Work *Work       // what to do with reports instead of delivering them, or nil
}

// A Work says what to do with reports of a socket instead of delivering them: accept connections
// (Accept), or carry out the operations that wait for the socket (Operations). One of them is nil.
type Work struct {
	Socket     *sock.Socket
	Accept     *Acceptor
	Operations Operations
}

// Operations are the overlapped operations of a socket; package operation has them. The slot is
// locked in each call.
type Operations interface {
	// Reported carries out what a report in some directions allows, and puts completions into out.
	// more reports that it stopped earlier.
	Reported(held sock.Held, d fdstate.Dir, out Entries) (n int, more bool)
	// Awaited returns the conditions that operations wait for. None are in flight if there are
	// none.
	Awaited() Events
	// Abort completes all operations with an error, because their registration has ended.
	Abort(why error)
	// SendShut tries sends again. queued reports that completions were queued.
	SendShut() (queued bool)
}

// idle reports whether no operation is in flight.
func (a *Work) idle() bool { return a.Operations.Awaited() == EventNone }

// like reports whether two registrations are of the same kind: delivered (nil), accepting or
// operating.
func (a *Work) like(b *Work) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.Accept == nil) == (b.Accept == nil)
}

// A Keyed is a record with its key. Every record of a port is in one.
type Keyed[K comparable] struct {
	Record // first, so that a pointer to it is one to the whole
	Key    K
}

// KeyOf returns the key of a record that is in a Keyed[K].
func KeyOf[K comparable](rec *Record) K { return (*Keyed[K])(unsafe.Pointer(rec)).Key }

// ClearKey zeroes the key of a record that is in a Keyed[K].
func ClearKey[K comparable](rec *Record) {
	var zero K
	(*Keyed[K])(unsafe.Pointer(rec)).Key = zero
}

// A Packet is a notification without its key.
type Packet struct {
	Rec    *Record // has the key
	Of     unsafe.Pointer
	Data   uintptr
	Events Events
	Kind   NoteKind
}

// Entries is a part of the caller's slice of notifications.
type Entries struct {
	Base    unsafe.Pointer
	At, End int
}

func (e Entries) Len() int { return e.End - e.At }

// From returns the entries after the first n.
func (e Entries) From(n int) Entries { return Entries{e.Base, e.At + n, e.End} }

// first returns the first n entries.
func (e Entries) first(n int) Entries { return Entries{e.Base, e.At, e.At + n} }

// A NoteKind is the kind of a notification, as in socknotify.Kind, and whether an accept failed.
type NoteKind uint8

// A Note has the layout of a socknotify.Notification, so that package overlapped can read its
// unexported fields.
type Note[K comparable] struct {
	Key    K
	Data   uintptr
	Events Events
	Kind   NoteKind
	Of     unsafe.Pointer
}

// EntriesOf returns all entries of a slice of notifications.
func EntriesOf(first unsafe.Pointer, n int) Entries { return Entries{Base: first, End: n} }

// An Acceptor is the state of Port.Accept for a listener.
type Acceptor struct {
	AtOnce int
	Paused atomic.Bool
	Pause  time.Duration // the latest pause; 0 after a success; guarded by the slot's lock
}

const (
	FromSocket NoteKind = iota
	Removed
	Posted
	Completion   // Of is a *Flight
	Connection   // Of is a *sock.Socket
	NoConnection // Of is an *error of accepting
)
