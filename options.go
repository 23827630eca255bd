package socknotify

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/socknotify/socknotify/internal/backend/system"
)

// BackendEnv is the environment variable that chooses the kernel of ports made without
// [WithBackend].
const BackendEnv = "SOCKNOTIFY_BACKEND"

// An Option changes how [New] makes a port.
type Option func(*options)

type options = system.Options

// WithBackend chooses the kernel by its name, one of [Backends]. It goes before BackendEnv; an empty
// name means the default.
//
// New's error for another name is [errors.ErrUnsupported], and says why.
func WithBackend(name string) Option {
	return func(o *options) { o.Name = name }
}

// Backends returns the names of this system's backends, the default first. It is empty where none is supported.
func Backends() []string {
	var names []string
	for _, r := range system.List() {
		names = append(names, r.Name)
	}
	return names
}

// choose finds the room to open.
func choose(o *options) (system.Backend, error) {
	if o.Backend != nil {
		return *o.Backend, nil
	}
	r, err := named(o)
	if err == nil && o.Ring {
		r = system.WithRing(r)
	}
	return r, err
}

// named finds the backend that an option or the environment names, or else the default.
func named(o *options) (system.Backend, error) {
	name, from := o.Name, "WithBackend"
	if name == "" {
		name, from = os.Getenv(BackendEnv), BackendEnv
	}
	list := system.List()
	if len(list) == 0 {
		return system.Backend{}, fmt.Errorf("socknotify: no backend for this system yet: %w", errors.ErrUnsupported)
	}
	if name == "" {
		return list[0], nil
	}
	if r, ok := system.Find(name); ok {
		return r, nil
	}
	return system.Backend{}, fmt.Errorf("socknotify: %s: backend %q is not available: %w; this system has %s",
		from, name, system.Absent(name), strings.Join(Backends(), ", "))
}

// WithStrictEdge makes edges of the port as rare as the contract allows (T2), which is how Windows reports
// them: a program that hangs there for an edge that it relied upon hangs here, too, in its tests. An edge
// registration then hears of a condition of its filter only when that begins to hold: neither at OpEnable,
// if it held already, nor again for what arrives while the socket has not been drained. Errors are always
// reported.
//
// The port must learn when a socket has been drained: a socket of package sock reports it by itself, any other is
// enabled again with Drained.
//
// It is for tests. What does not come from the kernel as an edge is taken from the kernel and dropped, and
// enabling costs two system calls more.
func WithStrictEdge() Option {
	return func(o *options) { o.Strict = true }
}
