package overlapped

import (
	"github.com/socknotify/socknotify/internal/kernel/operation"
	"github.com/socknotify/socknotify/internal/kernel/port"
)

var (
	// ErrCanceled is the result of an operation that Cancel ended (ERROR_OPERATION_ABORTED). For errors.Is it is
	// context.Canceled.
	ErrCanceled error = operation.ErrCanceled
	// ErrNotInFlight is the error of a Cancel that found nothing to cancel (ERROR_NOT_FOUND).
	ErrNotInFlight = operation.ErrNotInFlight
)

// An Error says why an operation was not started, or how it ended. errors.Is and errors.As see both Kind and Err.
type Error struct {
	// Op is the operation: recv, recvfrom, send, sendto, connect, accept, read or write.
	Op string
	// Handle is the socket's handle. It is all ones for a file, and where the socket has none any more.
	Handle uintptr
	// Kind is ErrCanceled or an error of package socknotify, such as ErrBadSocket. It is nil where the system has a
	// reason of its own.
	Kind error
	// Err is the cause: the system's error, or what was wrong. It may be nil.
	Err error
}

// Error names the operation, the socket, the kind and the cause.
func (e *Error) Error() string { return (*operation.Error)(e).Error() }

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error { return port.Both(e.Kind, e.Err) }

// public returns an operation's error with its public type.
func public(err error) error {
	if e, ok := err.(*operation.Error); ok {
		return (*Error)(e)
	}
	return err
}
