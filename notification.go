package socknotify

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A Notification is one dequeued packet (OVERLAPPED_ENTRY). Its Kind is what it stands for.
type Notification[K comparable] struct {
	// Key is that of the registration, or the one given to [Port.Post] or to the operation.
	Key K
	// Data is the number given to Post, or the number of bytes that an operation moved; otherwise 0.
	Data uintptr
	// Events is what the socket reported (SocketNotificationRetrieveEvents): bits of the
	// registration's filter and EventErr, or EventRemove alone; 0 for a post or a completion.
	Events Events

	kind port.NoteKind
	of   unsafe.Pointer // depends on kind; one word, because notifications are copied a lot
}

// A Kind is what a notification stands for.
type Kind uint8

const (
	KindSocket    = Kind(port.FromSocket) // conditions of a registered socket: see Events
	KindRemoved   = Kind(port.Removed)    // the EventRemove of a registration
	KindPosted    = Kind(port.Posted)     // a completion posted by [Port.Post]
	KindCompleted = Kind(port.Completion) // the end of an operation of package overlapped
	KindAccepted  = Kind(port.Connection) // a connection of [Port.Accept], or why there is none
)

var kindNames = [...]string{"socket", "removed", "posted", "completed", "accepted"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Kind returns what the notification stands for.
func (n Notification[K]) Kind() Kind { return Kind(min(n.kind, port.Connection)) }

// Accepted returns the connection of a KindAccepted notification, which the caller owns, or why there is none. Both
// results are nil for any other kind.
func (n Notification[K]) Accepted() (*sock.Socket, error) {
	switch n.kind {
	case port.Connection:
		return (*sock.Socket)(n.of), nil
	case port.NoConnection:
		return nil, *(*error)(n.of)
	}
	return nil, nil
}
