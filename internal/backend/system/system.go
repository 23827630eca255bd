// Package system lists the backends that this system has, the default first.
package system

import (
	"errors"

	"github.com/socknotify/socknotify/internal/backend"
)

// A Backend is one backend: its name, and how to open it.
type Backend struct {
	Name string
	Open func() (backend.Poller, error)
}

// Options are what a port is made with.
type Options struct {
	// Name is that of a Backend in List. Where it is empty, the environment's choice or the default is taken.
	Name string
	// Backend overrides Name, and need not be in List. Only tests set it.
	Backend *Backend
	// Strict is for WithStrictEdge.
	Strict bool
	// Ring is for WithRing.
	Ring bool
}

// Find returns the backend of a name.
func Find(name string) (r Backend, ok bool) {
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
