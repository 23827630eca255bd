package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// The errors that package overlapped documents.
var (
	ErrCanceled    error = canceledError{}
	ErrNotInFlight       = errors.New("socknotify: no such operation is in flight")
)

// canceledError is the type of ErrCanceled.
type canceledError struct{}

func (canceledError) Error() string        { return "canceled" }
func (canceledError) Is(target error) bool { return target == context.Canceled }

// An Error says why an operation was not started, or how it ended.
type Error struct {
	Op     string
	Handle port.Socket
	Kind   error // one of the above or of package port, or nil
	Err    error // the cause, or nil
}

func (e *Error) Error() string {
	s := "socknotify: " + e.Op
	if e.Handle != port.NoSocket {
		s += fmt.Sprintf(" socket %d", int(e.Handle))
	}
	return s + port.Causes(e.Kind, e.Err)
}

func (e *Error) Unwrap() []error { return port.Both(e.Kind, e.Err) }
