package socknotify

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/port"
)

// A Notification is one dequeued packet (OVERLAPPED_ENTRY): a socket's notification, a
// registration's removal, a completion posted by [Port.Post], a connection accepted for [Port.Accept], or
// the completion of an overlapped operation such as [Port.Recv].
type Notification[K comparable] struct {
	// Key is the registration's, or the one given to Post or to the operation.
	Key K
	// Data is what Post was given, or how many bytes an operation moved; 0 otherwise.
	Data uintptr
	// Events is what the socket reported (SocketNotificationRetrieveEvents): bits of the
	// registration's filter and EventErr, or EventRemove alone; 0 for a post or a completion.
	Events Events

	kind port.NoteKind
	of   unsafe.Pointer // what the kind says: one word, because notifications are copied a lot
}

// Posted reports whether the notification came from [Port.Post] rather than a socket (Q4).
func (n Notification[K]) Posted() bool { return n.kind == port.Posted }
