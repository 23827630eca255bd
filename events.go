package socknotify

import "github.com/socknotify/socknotify/internal/port"

// Events is a set of socket conditions: the event filter of a [Registration], or what a
// [Notification] reports. The values are Winsock's SOCK_NOTIFY_EVENT constants.
type Events uint32

const (
	// EventNone is the empty filter (SOCK_NOTIFY_REGISTER_EVENT_NONE): the registration is notified of errors and its
	// removal only.
	EventNone Events = 0x00
	// EventIn: a receive or an accept would not block (SOCK_NOTIFY_EVENT_IN). There is data, a datagram, a pending
	// connection or the end of the stream.
	EventIn Events = 0x01
	// EventOut: a send would not block, or a non-blocking connect has completed (SOCK_NOTIFY_EVENT_OUT).
	EventOut Events = 0x02
	// EventHangup: the peer of a stream disconnected, half-closed or aborted (SOCK_NOTIFY_EVENT_HANGUP). There may be
	// unread data. Datagram sockets and listeners never have it.
	EventHangup Events = 0x04
	// EventErr: an error is pending on the socket (SOCK_NOTIFY_EVENT_ERR). The next receive, or SO_ERROR, returns it. It is
	// always reported, and is invalid in a filter.
	EventErr Events = 0x40
	// EventRemove is the last notification of a registration (SOCK_NOTIFY_EVENT_REMOVE). It comes alone and exactly once,
	// after OpRemove. It is always reported, and is invalid in a filter.
	EventRemove Events = 0x80

	// EventsAll has every condition that a filter may have (SOCK_NOTIFY_REGISTER_EVENTS_ALL).
	EventsAll = EventIn | EventOut | EventHangup
)

// Has reports whether e holds every event of what. It is false for an empty what.
func (e Events) Has(what Events) bool { return what != 0 && e&what == what }

// String names the events, joined by "|"; the empty set is "NONE".
func (e Events) String() string { return port.Events(e).String() }

// Op says what a [Registration] does to its socket. The values are Winsock's SOCK_NOTIFY_OP constants. Two of them together
// are ErrInvalid.
type Op uint8

const (
	// OpNone does nothing; its Result is nil (SOCK_NOTIFY_OP_NONE).
	OpNone Op = 0
	// OpEnable registers the socket, or changes and enables its registration (SOCK_NOTIFY_OP_ENABLE).
	OpEnable Op = 1
	// OpDisable keeps the registration and stops new notifications (SOCK_NOTIFY_OP_DISABLE).
	OpDisable Op = 2
	// OpRemove ends the registration and delivers one EventRemove for its key (SOCK_NOTIFY_OP_REMOVE).
	OpRemove Op = 4
)

// String names the operation in lower case, as error messages do.
func (o Op) String() string { return port.Op(o).String() }

// Trigger says when an enabled registration notifies. OpEnable needs either TriggerLevel or TriggerEdge, and allows one of
// TriggerOneShot and TriggerPersistent; neither of the two means persistent. The values are Winsock's SOCK_NOTIFY_TRIGGER
// constants.
type Trigger uint8

const (
	// TriggerOneShot disables the registration with its next notification, until it is enabled again
	// (SOCK_NOTIFY_TRIGGER_ONESHOT).
	TriggerOneShot Trigger = 1
	// TriggerPersistent keeps the registration enabled (SOCK_NOTIFY_TRIGGER_PERSISTENT).
	TriggerPersistent Trigger = 2
	// TriggerLevel notifies while a condition of the filter holds (SOCK_NOTIFY_TRIGGER_LEVEL).
	TriggerLevel Trigger = 4
	// TriggerEdge notifies when a condition of the filter begins to hold (SOCK_NOTIFY_TRIGGER_EDGE). Drain the socket after
	// enabling and after each notification.
	TriggerEdge Trigger = 8
)

// String names the trigger flags, joined by "|"; no flags are "0".
func (t Trigger) String() string { return port.Trigger(t).String() }
