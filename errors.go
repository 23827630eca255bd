package socknotify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// timeoutError is the type of ErrTimeout, which speaks both of Go's dialects for time-outs.
type timeoutError struct{}

func (timeoutError) Error() string        { return "socknotify: wait timed out" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// closedError is the type of ErrClosed.
type closedError struct{}

func (closedError) Error() string        { return "socknotify: port is closed" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// canceledError is the type of ErrCanceled.
type canceledError struct{}

func (canceledError) Error() string        { return "canceled" }
func (canceledError) Is(target error) bool { return target == context.Canceled }

var (
	// ErrTimeout says that nothing could be dequeued within the time-out (WAIT_TIMEOUT, C4). The
	// registrations of the call were processed. It is os.ErrDeadlineExceeded to errors.Is, and a
	// net.Error whose Timeout is true.
	ErrTimeout error = timeoutError{}
	// ErrClosed says that the port is closed, or was closed during the call (P4). It is
	// net.ErrClosed to errors.Is.
	ErrClosed error = closedError{}

	// ErrCanceled is the result of an operation that Cancel ended (ERROR_OPERATION_ABORTED). It is
	// context.Canceled to errors.Is.
	ErrCanceled error = canceledError{}
	// ErrNotInFlight says that Cancel found nothing to cancel (ERROR_NOT_FOUND).
	ErrNotInFlight = errors.New("socknotify: no such operation is in flight")

	// ErrInvalid says that an argument makes no sense; the error around it names the field.
	// Nothing was changed.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotRegistered is the Result of OpDisable and OpRemove where the port has no
	// registration for the socket (any more) (G3, G4).
	ErrNotRegistered = errors.New("not registered")
	// ErrKeyMismatch is the Result of OpEnable with another key than the registration was created
	// with; nothing was changed (G2).
	ErrKeyMismatch = errors.New("registered with another key")
	// ErrOtherPort is the Result of OpEnable for a socket registered with another port; nothing
	// was changed (P5).
	ErrOtherPort = errors.New("registered with another port")
	// ErrBadSocket says that the handle is closed, not open, or no socket; the system's error is
	// beside it (G8).
	ErrBadSocket = errors.New("bad socket")
)

// An OpError is the Result of a registration that failed. errors.Is and errors.As see both Kind and
// Err.
type OpError struct {
	// Op is the operation that failed: OpEnable for that of Port.Accept.
	Op Op
	// Socket is the handle it was for. It is all ones where the connection, or the socket of package
	// sock, no longer has one.
	Socket Socket
	// Conn tells that the registration named a connection, or a socket of package sock, rather than a
	// handle.
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
	case e.Conn && e.Socket == noSocket:
		s += " connection"
	default:
		s += fmt.Sprintf(" socket %d", int(e.Socket))
	}
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *OpError) Unwrap() []error { return both(e.Kind, e.Err) }

// An OverlappedError says why an operation was not started, or how it ended. errors.Is and errors.As see both
// Kind and Err.
type OverlappedError struct {
	// Op is the operation: recv, recvfrom, send, sendto, connect, read or write.
	Op string
	// Socket is the handle it was for. It is all ones for a file, and where the socket no longer has one.
	Socket Socket
	// Kind is the package's error: ErrCanceled, ErrBadSocket and so on. It is nil where the system has a
	// reason of its own.
	Kind error
	// Err is the cause: the system's error, or what was wrong. It may be nil.
	Err error
}

// Error says operation, socket, kind and cause.
func (e *OverlappedError) Error() string {
	s := "socknotify: " + e.Op
	if e.Socket != noSocket {
		s += fmt.Sprintf(" socket %d", int(e.Socket))
	}
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *OverlappedError) Unwrap() []error { return both(e.Kind, e.Err) }

// both is those that are not nil.
func both(kind, cause error) []error {
	errs := make([]error, 0, 2)
	if kind != nil {
		errs = append(errs, kind)
	}
	if cause != nil {
		errs = append(errs, cause)
	}
	return errs
}

// noSocket stands where a connection or socket had no handle any more.
const noSocket = ^Socket(0)

// A fieldError says which field of a registration is wrong, and what it held.
type fieldError struct {
	field, why string
	value      fmt.Stringer
}

func (e *fieldError) Error() string {
	if e.value == nil {
		return e.field + ": " + e.why
	}
	return e.field + ": " + e.why + " (" + e.value.String() + ")"
}

func invalid(field, why string, value fmt.Stringer) error {
	return &fieldError{field, why, value}
}

// callError is a failure of a whole call.
func callError(call, why string) error {
	return fmt.Errorf("socknotify: %s: %w: %s", call, ErrInvalid, why)
}
