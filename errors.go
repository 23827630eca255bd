package socknotify

import (
	"fmt"

	"github.com/socknotify/socknotify/internal/port"
)

var (
	// ErrTimeout says that nothing could be dequeued within the time-out (WAIT_TIMEOUT, C4). The
	// registrations of the call were processed. It is os.ErrDeadlineExceeded to errors.Is, and a
	// net.Error whose Timeout is true.
	ErrTimeout error = port.ErrTimeout
	// ErrClosed says that the port is closed, or was closed during the call (P4). It is
	// net.ErrClosed to errors.Is.
	ErrClosed error = port.ErrClosed

	// ErrInvalid says that an argument makes no sense; the error around it names the field.
	// Nothing was changed.
	ErrInvalid = port.ErrInvalid
	// ErrNotRegistered is the Result of OpDisable and OpRemove where the port has no
	// registration for the socket (any more) (G3, G4).
	ErrNotRegistered = port.ErrNotRegistered
	// ErrKeyMismatch is the Result of OpEnable with another key than the registration was created
	// with; nothing was changed (G2).
	ErrKeyMismatch = port.ErrKeyMismatch
	// ErrOtherPort is the Result of OpEnable for a socket registered with another port; nothing
	// was changed (P5).
	ErrOtherPort = port.ErrOtherPort
	// ErrBadSocket says that the handle is closed, not open, or no socket; the system's error is
	// beside it (G8).
	ErrBadSocket = port.ErrBadSocket
)

// An OpError is the Result of a registration that failed. errors.Is and errors.As see both Kind and
// Err.
type OpError struct {
	// Op is the operation that failed: OpEnable for that of Port.Accept.
	Op Op
	// Handle is the socket's handle. It is all ones where the connection has none any more.
	Handle uintptr
	// Conn reports whether the registration had a Conn, rather than a Handle.
	Conn bool
	// Kind is the package's error: ErrBadSocket, ErrNotRegistered and so on. It is nil where the
	// system refused for a reason of its own, such as a limit.
	Kind error
	// Err is the cause: the system's error, or which field was wrong. It may be nil.
	Err error

	accept bool // Port.Accept's
}

// Error says operation, socket, kind and cause.
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

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *OpError) Unwrap() []error { return port.Both(e.Kind, e.Err) }
