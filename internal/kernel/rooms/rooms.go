// Package rooms lists the backends that this system has, the default first.
package rooms

import (
	"errors"

	"github.com/socknotify/socknotify/internal/kernel"
)

// A Room is one backend: its name, and how to open it.
type Room struct {
	Name string
	Open func() (kernel.Poller, error)
}

// Options are what a port is made with.
type Options struct {
	// Backend is the name of a Room in List. Empty: the user's choice, or the default.
	Backend string
	// Room goes before Backend, and need not be in List. Only tests set it.
	Room *Room
	// Strict is for WithStrictEdge.
	Strict bool
	// Ring is for WithRing.
	Ring bool
}

// Find returns the backend of a name.
func Find(name string) (r Room, ok bool) {
	for _, r := range List() {
		if r.Name == name {
			return r, true
		}
	}
	return r, false
}

// Absent returns why a backend is not in List. The error is errors.ErrUnsupported.
func Absent(name string) error {
	if name == "iouring" {
		return errNotReadiness
	}
	if err := absent(name); err != nil {
		return err
	}
	return errors.ErrUnsupported
}

// errNotReadiness is for programs and scripts that chose the backend of earlier versions.
var errNotReadiness error = &notReadiness{}

type notReadiness struct{}

func (*notReadiness) Error() string {
	return "io_uring is no backend for readiness, see docs/decisions/io_uring.md; WithRing uses it for overlapped operations"
}

func (*notReadiness) Unwrap() error { return errors.ErrUnsupported }
