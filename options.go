package socknotify

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel/rooms"
)

// BackendEnv is the environment variable that chooses the kernel of ports made without
// [WithBackend].
const BackendEnv = "SOCKNOTIFY_BACKEND"

// An Option changes how [New] makes a port.
type Option func(*options)

type options = rooms.Options

// WithBackend chooses the kernel by its name, one of [Backends]. It goes before BackendEnv; an empty
// name means the default.
//
// New's error for another name is [errors.ErrUnsupported], and says why. Of io_uring where it is missing or
// forbidden it is the system's error as well, such as EPERM.
func WithBackend(name string) Option {
	return func(o *options) { o.Backend = name }
}

// Backends names the kernels of this system, the default first. It is empty where none is supported. One that
// a system may forbid, such as iouring, is left out where it does: New, asked for it by WithBackend, says why.
func Backends() []string {
	var names []string
	for _, r := range rooms.List() {
		names = append(names, r.Name)
	}
	return names
}

// choose finds the room to open.
func choose(o *options) (rooms.Room, error) {
	if o.Room != nil {
		return *o.Room, nil
	}
	name, from := o.Backend, "WithBackend"
	if name == "" {
		name, from = os.Getenv(BackendEnv), BackendEnv
	}
	first, ok := rooms.Default()
	if !ok {
		return rooms.Room{}, fmt.Errorf("socknotify: no backend for this system yet: %w", errors.ErrUnsupported)
	}
	if name == "" {
		return first, nil
	}
	if r, ok := rooms.Find(name); ok {
		return r, nil
	}
	return rooms.Room{}, fmt.Errorf("socknotify: %s: backend %q is not available: %w; this system has %s",
		from, name, rooms.Absent(name), strings.Join(Backends(), ", "))
}
