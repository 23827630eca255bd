package socknotify

import "github.com/socknotify/socknotify/internal/port"

// Events is a set of socket conditions: the event filter of a [Registration], or what a
// [Notification] reports. The values are Winsock's SOCK_NOTIFY_EVENT constants.
type Events uint32

const (
	// EventNone is the empty filter (SOCK_NOTIFY_REGISTER_EVENT_NONE): the registration hears
	// only errors and its removal (E8).
	EventNone Events = 0x00
	// EventIn says that a receive or an accept would not block (SOCK_NOTIFY_EVENT_IN): data, a
	// datagram, a pending connection or end of stream (E1).
	EventIn Events = 0x01
	// EventOut says that a send would not block, or that a non-blocking connect has completed
	// (SOCK_NOTIFY_EVENT_OUT, E2).
	EventOut Events = 0x02
	// EventHangup says that the peer of a stream disconnected, half-closed or aborted
	// (SOCK_NOTIFY_EVENT_HANGUP). Unread data may remain (E3). It never comes for datagram
	// sockets or listeners (E4).
	EventHangup Events = 0x04
	// EventErr says that an error is pending on the socket (SOCK_NOTIFY_EVENT_ERR); the next
	// receive, or SO_ERROR, tells which (E5). It is always on and is invalid in a filter (G7).
	EventErr Events = 0x40
	// EventRemove is the last notification of a registration (SOCK_NOTIFY_EVENT_REMOVE): it comes
	// alone, exactly once, after OpRemove (G4, G5). It is always on and is invalid in a filter.
	EventRemove Events = 0x80

	// EventsAll is every condition a filter may hold (SOCK_NOTIFY_REGISTER_EVENTS_ALL).
	EventsAll = EventIn | EventOut | EventHangup
)

// Has reports whether e holds every event of what. It is false for an empty what.
func (e Events) Has(what Events) bool { return what != 0 && e&what == what }

// String names the events, joined by "|"; the empty set is "NONE".
func (e Events) String() string { return port.Events(e).String() }

// Op says what a [Registration] does to its socket. The values are Winsock's SOCK_NOTIFY_OP
// constants. One entry takes one operation; two of them together are ErrInvalid (G6).
type Op uint8

const (
	// OpNone does nothing; its Result is nil (SOCK_NOTIFY_OP_NONE).
	OpNone Op = 0
	// OpEnable registers the socket, or changes and enables its registration
	// (SOCK_NOTIFY_OP_ENABLE; G1, G2).
	OpEnable Op = 1
	// OpDisable keeps the registration and stops new notifications (SOCK_NOTIFY_OP_DISABLE, G3).
	OpDisable Op = 2
	// OpRemove ends the registration and delivers one EventRemove for its key
	// (SOCK_NOTIFY_OP_REMOVE, G4).
	OpRemove Op = 4
)

// String names the operation in lower case, as error messages do.
func (o Op) String() string { return port.Op(o).String() }

// Trigger says when an enabled registration notifies. OpEnable needs one of TriggerLevel and
// TriggerEdge, and takes at most one of TriggerOneShot and TriggerPersistent; neither means
// persistent (G6). The values are Winsock's SOCK_NOTIFY_TRIGGER constants.
type Trigger uint8

const (
	// TriggerOneShot disables the registration with its next notification, until it is enabled
	// again (SOCK_NOTIFY_TRIGGER_ONESHOT, T3).
	TriggerOneShot Trigger = 1
	// TriggerPersistent keeps the registration enabled (SOCK_NOTIFY_TRIGGER_PERSISTENT).
	TriggerPersistent Trigger = 2
	// TriggerLevel notifies whenever a condition of the filter holds
	// (SOCK_NOTIFY_TRIGGER_LEVEL, T1).
	TriggerLevel Trigger = 4
	// TriggerEdge notifies when a condition of the filter begins to hold
	// (SOCK_NOTIFY_TRIGGER_EDGE, T2): drain the socket after enabling and after each notification.
	TriggerEdge Trigger = 8
)

// String names the trigger flags, joined by "|"; no flags are "0".
func (t Trigger) String() string { return port.Trigger(t).String() }
