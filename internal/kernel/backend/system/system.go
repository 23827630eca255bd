// Package system lists the backends of the system that the program was built for.
package system

import (
	"errors"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// A Backend is the name of a backend and the function that opens it.
type Backend struct {
	Name string
	Open func() (backend.Poller, error)
}

// Options choose the backend of a port.
type Options struct {
	// Name is the name of a Backend in List. If it is empty, the environment's choice or the default is used.
	Name string
	// Backend overrides Name, and need not be in List. Only tests set it.
	Backend *Backend
	// Strict is set by WithStrictEdge.
	Strict bool
}

// Find returns the backend with the given name. ok is false if List does not have it.
func Find(name string) (r Backend, ok bool) {
	for _, r := range List() {
		if r.Name == name {
			return r, true
		}
	}
	return r, false
}

// Absent returns the reason why a backend is not in List. The error wraps errors.ErrUnsupported.
func Absent(name string) error {
	if name == "iouring" {
		return errNotReadiness
	}
	if err := absent(name); err != nil {
		return err
	}
	return errors.ErrUnsupported
}

// errNotReadiness is returned to programs and scripts that choose a backend which earlier versions had.
var errNotReadiness error = &notReadiness{}

type notReadiness struct{}

func (*notReadiness) Error() string {
	return "io_uring is not used, see docs/decisions/io_uring.md"
}

func (*notReadiness) Unwrap() error { return errors.ErrUnsupported }
