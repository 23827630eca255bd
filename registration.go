package socknotify

import (
	"syscall"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Socket is a system socket handle, as [syscall.RawConn.Control] gives it: a descriptor number on
// Unix, a SOCKET on Windows.
type Socket = uintptr

// A Registration is one entry of a [Port.Process] call: an operation on one socket
// (SOCK_NOTIFY_REGISTRATION).
type Registration[K comparable] struct {
	// Socket is the handle to act on. It is not read when Conn or Sock is set. Where neither is, 0 is a
	// handle as any other: on Unix the standard input.
	Socket Socket
	// Conn is an alternative to Socket for the standard library's connections and listeners
	// (X2). Its descriptor is used inside Control alone, so a concurrent Close cannot be raced,
	// and the port keeps the connection reachable while it is registered. Its dynamic type must
	// be comparable (pointers are); ErrInvalid otherwise.
	Conn syscall.Conn
	// Sock is an alternative to Socket for the sockets of package sock. It is not read when Conn is set. One
	// that is closed meanwhile cannot be mistaken for another socket, its Close ends the registration (G9), and
	// it vouches for itself: where it has been drained, enabling costs no system call (X5), and on a kernel without
	// edges an edge registration needs no enabling again (T2).
	Sock *sock.Socket
	// Key comes back in every notification of this registration (completionKey). It is set when
	// the registration is created: enabling with another key is ErrKeyMismatch, a key that does not equal
	// itself (NaN), or whose comparison would panic, ErrInvalid (G2). Read on OpEnable only.
	Key K
	// Filter is the set of conditions to hear of (eventFilter): EventIn, EventOut, EventHangup
	// or none (G7). Read on OpEnable only.
	Filter Events
	// Op is what to do (operation).
	Op Op
	// Trigger is how to notify (triggerFlags). Read on OpEnable only.
	Trigger Trigger
	// Drained, on OpEnable, vouches: since the last enable on this port this is the same open
	// socket, and the last non-blocking call in each direction of the filter, made after its last
	// notification was dequeued, would have blocked. Where nothing has happened since, enabling
	// then costs no system call (X5). A false vouch can lose notifications of this registration.
	// Read on OpEnable only.
	Drained bool
	// Result is how this entry fared (registrationResult): nil or an *OpError. Process overwrites
	// it and never reads it (C3, C5).
	Result error
}

// Enable returns an OpEnable registration.
func Enable[K comparable](socket Socket, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Socket: socket, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// Disable returns an OpDisable registration.
func Disable[K comparable](socket Socket) Registration[K] {
	return Registration[K]{Socket: socket, Op: OpDisable}
}

// Remove returns an OpRemove registration.
func Remove[K comparable](socket Socket) Registration[K] {
	return Registration[K]{Socket: socket, Op: OpRemove}
}

// EnableSock returns an OpEnable registration of a socket of package sock. Of a nil one the Result is
// ErrBadSocket, as of a closed one.
func EnableSock[K comparable](s *sock.Socket, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Socket: port.NoSocket, Sock: s, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// DisableSock returns an OpDisable registration of a socket of package sock, as EnableSock does.
func DisableSock[K comparable](s *sock.Socket) Registration[K] {
	return Registration[K]{Socket: port.NoSocket, Sock: s, Op: OpDisable}
}

// RemoveSock returns an OpRemove registration of a socket of package sock, as EnableSock does.
func RemoveSock[K comparable](s *sock.Socket) Registration[K] {
	return Registration[K]{Socket: port.NoSocket, Sock: s, Op: OpRemove}
}
