// Package backendtest lists the backends that tests run on: those of the system, and the fake ones. Only tests
// import it.
package backendtest

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/backend/system"
)

// Ring is the epoll backend with io_uring for operations, and RingAlways the same where the ring is used for every
// operation. List has Ring where the system allows io_uring, and RingAlways only when the environment asks for it.
const (
	Ring       = "epoll-ring"
	RingAlways = "epoll-ring-always"
)

// list is made once: the ports of a test must be on one fake system.
var list = sync.OnceValues(func() ([]system.Backend, error) {
	all := append(system.List(), fakes()...)
	only := os.Getenv("SOCKNOTIFY_BACKEND")
	if only == "" {
		return all, nil
	}
	for _, r := range all {
		if r.Name == only {
			return []system.Backend{r}, nil
		}
	}
	if r, ok := fake(only); ok {
		return []system.Backend{r}, nil
	}
	return nil, fmt.Errorf("SOCKNOTIFY_BACKEND=%s: there is no such room", only)
})

// List returns the backends, or the one that the environment asks for.
func List(tb testing.TB) []system.Backend {
	tb.Helper()
	all, err := list()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Files returns the backends for tests of files: those in List, and one whose kernel is given every read and write,
// where the system has io_uring.
func Files(tb testing.TB) []system.Backend {
	tb.Helper()
	all := slices.Clone(List(tb))
	if slices.ContainsFunc(all, func(r system.Backend) bool { return r.Name == Ring }) {
		if r, ok := fake(RingAlways); ok {
			all = append(all, r)
		}
	}
	return all
}

// Names returns the names of the backends in List.
func Names(tb testing.TB) []string {
	tb.Helper()
	var names []string
	for _, r := range List(tb) {
		names = append(names, r.Name)
	}
	return names
}

// With is an option of socknotify.New, as WithBackend is, for any room in List. No name is the system's
// default, whatever the environment asks for.
func With(name string) func(*system.Options) {
	return func(o *system.Options) {
		all, _ := list()
		for _, r := range append(system.List(), all...) {
			if name == "" || name == r.Name {
				o.Backend = &r
				return
			}
		}
		o.Name = name
	}
}
