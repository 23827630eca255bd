package socknotify

import "syscall"

// A Registration is one entry of a [Port.Process] call: an operation on one socket
// (SOCK_NOTIFY_REGISTRATION).
type Registration[K comparable] struct {
	// Conn is the socket to act on: a connection or listener of package net, a [sock.Socket], or anything
	// else that has a SyscallConn method.
	//
	// A connection of package net stays reachable while it is registered, and its descriptor is used inside
	// Control alone, so a concurrent Close is safe. Its dynamic type must be comparable (pointers are);
	// otherwise Result is ErrInvalid.
	//
	// A sock.Socket ends its registration when it is closed. It also knows whether it has been drained since the
	// port last notified: enabling it again then costs no system call, and an edge registration needs no
	// enabling again on any system.
	Conn syscall.Conn
	// Handle is the system's handle of the socket, where Conn is nil: a descriptor on Unix, a SOCKET on
	// Windows. The port cannot know when such a socket is closed, so remove the registration first. If Conn is nil,
	// Handle must not be 0; to register the descriptor 0, set Conn.
	Handle uintptr
	// Key comes back in every notification of this registration (completionKey). It is set when
	// the registration is created: enabling with another key is ErrKeyMismatch. A key that does not equal
	// itself (NaN), or whose comparison would panic, is ErrInvalid. Only OpEnable reads it.
	Key K
	// Filter is the set of conditions to be notified of (eventFilter): EventIn, EventOut, EventHangup
	// or none. Only OpEnable reads it.
	Filter Events
	// Op is what to do (operation).
	Op Op
	// Trigger is how to notify (triggerFlags). Only OpEnable reads it.
	Trigger Trigger
	// Drained, on OpEnable, promises two things. The socket is the one that was last enabled on this port, and it
	// has stayed open. And after the last notification was dequeued, the program received or sent, in each direction
	// of the filter, until the call would have blocked. If the system has reported nothing since, enabling then
	// costs no system call. A false promise can lose notifications of this registration. A sock.Socket needs no
	// promise.
	Drained bool
	// Result is the outcome of this entry (registrationResult): nil or an *[OpError]. Process overwrites it and
	// never reads it.
	Result error
}

// Enable returns an OpEnable registration of a connection, listener or [sock.Socket].
func Enable[K comparable](conn syscall.Conn, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Conn: conn, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// Disable returns an OpDisable registration of a connection, listener or [sock.Socket].
func Disable[K comparable](conn syscall.Conn) Registration[K] {
	return Registration[K]{Conn: conn, Op: OpDisable}
}

// Remove returns an OpRemove registration of a connection, listener or [sock.Socket].
func Remove[K comparable](conn syscall.Conn) Registration[K] {
	return Registration[K]{Conn: conn, Op: OpRemove}
}
