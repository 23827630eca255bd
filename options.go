package socknotify

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/socknotify/socknotify/internal/backend/system"
)

// BackendEnv is the environment variable with the name of the backend for ports made without [WithBackend].
const BackendEnv = "SOCKNOTIFY_BACKEND"

// An Option changes how [New] makes a port.
type Option func(*options)

type options = system.Options

// WithBackend chooses the backend by its name, one of [Backends]. It overrides BackendEnv. An empty name is the same as no
// WithBackend.
//
// For any other name the error of New is [errors.ErrUnsupported] and says why.
func WithBackend(name string) Option {
	return func(o *options) { o.Name = name }
}

// Backends returns the names of this system's backends, the default first. It is empty if the system is not supported.
func Backends() []string {
	var names []string
	for _, r := range system.List() {
		names = append(names, r.Name)
	}
	return names
}

// choose returns the backend to open: that which an option or the environment names, or else the default.
func choose(o *options) (system.Backend, error) {
	if o.Backend != nil {
		return *o.Backend, nil
	}
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

// WithStrictEdge makes edge notifications as rare as the contract allows, which is how Windows reports them. A program that
// waits for an edge that Windows does not report then waits forever in its tests, on any system. An edge registration is
// notified of a condition of its filter only when the condition begins to hold. It is not notified at OpEnable if the
// condition held already, nor again of data that arrives while the socket has not been drained. Errors are always reported.
//
// The port must learn when a socket has been drained: a sock.Socket reports it by itself, and any other socket is enabled
// again with Drained.
//
// It is meant for tests. Enabling costs two more system calls.
func WithStrictEdge() Option {
	return func(o *options) { o.Strict = true }
}
