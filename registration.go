package socknotify

import (
	"syscall"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// A Registration is one entry of a [Port.Process] call: an operation on one socket
// (SOCK_NOTIFY_REGISTRATION).
type Registration[K comparable] struct {
	// Conn is the socket to act on: a connection or listener of package net, a [sock.Socket], or
	// anything else that has a SyscallConn method.
	//
	// A connection of package net stays reachable while it is registered, and its descriptor is
	// used inside Control alone, so a concurrent Close is safe. Its dynamic type must be comparable
	// (pointers are); otherwise Result is ErrInvalid.
	//
	// A sock.Socket ends its registration when it is closed. It also knows whether it has been
	// drained since the port last notified: enabling it again then costs no system call, and an
	// edge registration needs no enabling again on any system.
	Conn syscall.Conn
	// Handle is the system's handle of the socket, where Conn is nil: a descriptor on Unix, a
	// SOCKET on Windows. The port cannot know when such a socket is closed, so remove the
	// registration first. If Conn is nil, Handle must not be 0; to register the descriptor 0, set
	// Conn.
	Handle uintptr
	// Key comes back in every notification of this registration (completionKey). It is set when the
	// registration is created: enabling with another key is ErrKeyMismatch. A key that does not
	// equal itself (NaN), or whose comparison would panic, is ErrInvalid. Only OpEnable reads it.
	Key K
	// Filter is the set of conditions to be notified of (eventFilter): EventIn, EventOut,
	// EventHangup or none. Only OpEnable reads it.
	Filter Events
	// Op is what to do (operation).
	Op Op
	// Trigger is how to notify (triggerFlags). Only OpEnable reads it.
	Trigger Trigger
	// Drained, on OpEnable, promises two things. The socket is the one that was last enabled on
	// this port, and it has stayed open. And after the last notification was dequeued, the program
	// received or sent, in each direction of the filter, until the call would have blocked. If the
	// system has reported nothing since, enabling then costs no system call. A false promise can
	// lose notifications of this registration. A sock.Socket needs no promise.
	Drained bool
	// Result is the outcome of this entry (registrationResult): nil or an *[OpError]. Process
	// overwrites it and never reads it.
	Result error
}

// Enable returns an OpEnable registration of a connection, listener or [sock.Socket].
func Enable[K comparable](
	conn syscall.Conn, key K, filter Events, trigger Trigger,
) Registration[K] {
	return Registration[K]{Conn: conn, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// Disable returns an OpDisable registration of a connection, listener or [sock.Socket]. The type of
// the port's keys must be named: Disable[*client](c).
func Disable[K comparable](conn syscall.Conn) Registration[K] {
	return Registration[K]{Conn: conn, Op: OpDisable}
}

// Remove returns an OpRemove registration of a connection, listener or [sock.Socket]. The type of
// the port's keys must be named: Remove[*client](c).
func Remove[K comparable](conn syscall.Conn) Registration[K] {
	return Registration[K]{Conn: conn, Op: OpRemove}
}

// A Notification is one dequeued packet (OVERLAPPED_ENTRY). Its Kind is what it stands for.
type Notification[K comparable] struct {
	// Key is that of the registration, or the one given to [Port.Post] or to the operation.
	Key K
	// Data is the number given to Post, or the number of bytes that an operation moved; otherwise
	// 0.
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

// Accepted returns the connection of a KindAccepted notification, which the caller owns, or why
// there is none. Both results are nil for any other kind.
func (n Notification[K]) Accepted() (*sock.Socket, error) {
	switch n.kind {
	case port.Connection:
		return (*sock.Socket)(n.of), nil
	case port.NoConnection:
		return nil, *(*error)(n.of)
	}
	return nil, nil
}

// Events is a set of socket conditions: the event filter of a [Registration], or what a
// [Notification] reports. The values are Winsock's SOCK_NOTIFY_EVENT constants.
type Events uint32

const (
	// EventNone is the empty filter (SOCK_NOTIFY_REGISTER_EVENT_NONE): the registration is notified
	// of errors and its removal only.
	EventNone Events = 0x00
	// EventIn: a receive or an accept would not block (SOCK_NOTIFY_EVENT_IN). There is data, a
	// datagram, a pending connection or the end of the stream.
	EventIn Events = 0x01
	// EventOut: a send would not block, or a non-blocking connect has completed
	// (SOCK_NOTIFY_EVENT_OUT).
	EventOut Events = 0x02
	// EventHangup: the peer of a stream disconnected, half-closed or aborted
	// (SOCK_NOTIFY_EVENT_HANGUP). There may be unread data. Datagram sockets and listeners never
	// have it.
	EventHangup Events = 0x04
	// EventErr: an error is pending on the socket (SOCK_NOTIFY_EVENT_ERR). The next receive, or
	// SO_ERROR, returns it. It is always reported, and is invalid in a filter.
	EventErr Events = 0x40
	// EventRemove is the last notification of a registration (SOCK_NOTIFY_EVENT_REMOVE). It comes
	// alone and exactly once, after OpRemove. It is always reported, and is invalid in a filter.
	EventRemove Events = 0x80

	// EventsAll has every condition that a filter may have (SOCK_NOTIFY_REGISTER_EVENTS_ALL).
	EventsAll = EventIn | EventOut | EventHangup
)

// Has reports whether e holds every event of what. It is false for an empty what.
func (e Events) Has(what Events) bool { return what != 0 && e&what == what }

// String names the events, joined by "|"; the empty set is "NONE".
func (e Events) String() string { return port.Events(e).String() }

// Op says what a [Registration] does to its socket. The values are Winsock's SOCK_NOTIFY_OP
// constants. Two of them together are ErrInvalid.
type Op uint8

const (
	// OpNone does nothing; its Result is nil (SOCK_NOTIFY_OP_NONE).
	OpNone Op = 0
	// OpEnable registers the socket, or changes and enables its registration
	// (SOCK_NOTIFY_OP_ENABLE).
	OpEnable Op = 1
	// OpDisable keeps the registration and stops new notifications (SOCK_NOTIFY_OP_DISABLE).
	OpDisable Op = 2
	// OpRemove ends the registration and delivers one EventRemove for its key
	// (SOCK_NOTIFY_OP_REMOVE).
	OpRemove Op = 4
)

// String names the operation in lower case, as error messages do.
func (o Op) String() string { return port.Op(o).String() }

// Trigger says when an enabled registration notifies. OpEnable needs either TriggerLevel or
// TriggerEdge, and allows one of TriggerOneShot and TriggerPersistent; neither of the two means
// persistent. The values are Winsock's SOCK_NOTIFY_TRIGGER constants.
type Trigger uint8

const (
	// TriggerOneShot disables the registration with its next notification, until it is enabled
	// again (SOCK_NOTIFY_TRIGGER_ONESHOT).
	TriggerOneShot Trigger = 1
	// TriggerPersistent keeps the registration enabled (SOCK_NOTIFY_TRIGGER_PERSISTENT).
	TriggerPersistent Trigger = 2
	// TriggerLevel notifies while a condition of the filter holds (SOCK_NOTIFY_TRIGGER_LEVEL).
	TriggerLevel Trigger = 4
	// TriggerEdge notifies when a condition of the filter begins to hold
	// (SOCK_NOTIFY_TRIGGER_EDGE). Drain the socket after enabling and after each notification.
	TriggerEdge Trigger = 8
)

// String names the trigger flags, joined by "|"; no flags are "0".
func (t Trigger) String() string { return port.Trigger(t).String() }
