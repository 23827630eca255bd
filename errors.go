package socknotify

import (
	"fmt"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

var (
	// ErrTimeout says that nothing could be dequeued within the timeout (WAIT_TIMEOUT). The
	// registrations of the call were processed. For errors.Is it is os.ErrDeadlineExceeded, and it
	// is a net.Error whose Timeout is true.
	ErrTimeout error = port.ErrTimeout
	// ErrClosed says that the port is closed, or was closed during the call. For errors.Is it is
	// net.ErrClosed.
	ErrClosed error = port.ErrClosed

	// ErrInvalid says that an argument is invalid; the error around it names the field. Nothing was
	// changed.
	ErrInvalid = port.ErrInvalid
	// ErrNotRegistered is the Result of OpDisable and OpRemove for a socket without a registration
	// on the port.
	ErrNotRegistered = port.ErrNotRegistered
	// ErrKeyMismatch is the Result of OpEnable with another key than the registration was created
	// with. Nothing was changed.
	ErrKeyMismatch = port.ErrKeyMismatch
	// ErrOtherPort is the Result of OpEnable for a socket registered with another port. Nothing was
	// changed.
	ErrOtherPort = port.ErrOtherPort
	// ErrBadSocket says that the handle is closed, was never open, or is no socket. The system's
	// error is wrapped beside it.
	ErrBadSocket = port.ErrBadSocket
)

// An OpError is the Result of a registration that failed. errors.Is and errors.As find both Kind
// and Err.
type OpError struct {
	// Op is the operation that failed: OpEnable for that of Port.Accept.
	Op Op
	// Handle is the socket's handle. It is all ones where the connection has none any more.
	Handle uintptr
	// Conn reports whether the registration had a Conn, rather than a Handle.
	Conn bool
	// Kind is an error of this package, such as ErrBadSocket. It is nil if the system refused for a
	// reason of its own, such as a limit.
	Kind error
	// Err is the cause: the system's error, or which field was wrong. It may be nil.
	Err error

	accept bool // from Port.Accept
}

// Error names the operation, the socket, the kind and the cause.
func (e *OpError) Error() string {
	s := "socknotify: " + e.Op.String()
	if e.accept {
		s = "socknotify: accept"
	}
	switch {
	case e.Conn && e.Handle == port.NoSocket:
		s += " connection"
	default:
		s += fmt.Sprintf(" socket %d", int(e.Handle))
	}
	return s + port.Causes(e.Kind, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *OpError) Unwrap() []error { return port.Both(e.Kind, e.Err) }
