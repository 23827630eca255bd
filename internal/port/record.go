package port

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

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
