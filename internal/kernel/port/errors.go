package port

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// The errors that the public package documents.
var (
	ErrTimeout       error = timeoutError{}
	ErrClosed        error = closedError{}
	ErrInvalid             = errors.New("invalid argument")
	ErrNotRegistered       = errors.New("not registered")
	ErrKeyMismatch         = errors.New("registered with another key")
	ErrOtherPort           = errors.New("registered with another port")
	ErrBadSocket           = errors.New("bad socket")
)

// timeoutError is the type of ErrTimeout, which is both os.ErrDeadlineExceeded and a net.Error.
type timeoutError struct{}

func (timeoutError) Error() string        { return "socknotify: wait timed out" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// closedError is the type of ErrClosed.
type closedError struct{}

func (closedError) Error() string        { return "socknotify: port is closed" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Causes returns the part of an error text that names kind and cause.
func Causes(kind, cause error) (s string) {
	for _, err := range Both(kind, cause) {
		s += ": " + err.Error()
	}
	return s
}

// Both returns those of the two that are not nil.
func Both(kind, cause error) []error {
	errs := make([]error, 0, 2)
	if kind != nil {
		errs = append(errs, kind)
	}
	if cause != nil {
		errs = append(errs, cause)
	}
	return errs
}

// NoSocket is the handle of a connection or socket that has none any more.
const NoSocket = ^Socket(0)

// A fieldError names the field of a registration that is wrong, and its value.
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

func Invalid(field, why string, value fmt.Stringer) error {
	return &fieldError{field, why, value}
}

// CallError returns the error of a call that failed as a whole.
func CallError(call, why string) error {
	return fmt.Errorf("socknotify: %s: %w: %s", call, ErrInvalid, why)
}

// A failure says why a registration was not made: a kind of this package, and a cause. Either may
// be nil.
type failure struct{ kind, err error }

func failed(kind, err error) *failure { return &failure{kind, err} }
