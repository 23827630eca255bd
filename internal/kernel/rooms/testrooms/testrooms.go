// Package testrooms lists the rooms that tests run on: those of the system, and the fake ones. Only tests
// import it.
package testrooms

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/rooms"
)

// Ring is the epoll backend with io_uring for operations, and RingAlways the same where the ring is used for every
// operation. List has Ring where the system allows io_uring, and RingAlways only when the environment asks for it.
const (
	Ring       = "epoll-ring"
	RingAlways = "epoll-ring-always"
)

// list is made once: the ports of a test must be on one fake system.
var list = sync.OnceValues(func() ([]rooms.Room, error) {
	all := append(rooms.List(), fakes()...)
	only := os.Getenv("SOCKNOTIFY_BACKEND")
	if only == "" {
		return all, nil
	}
	for _, r := range all {
		if r.Name == only {
			return []rooms.Room{r}, nil
		}
	}
	if r, ok := fake(only); ok {
		return []rooms.Room{r}, nil
	}
	return nil, fmt.Errorf("SOCKNOTIFY_BACKEND=%s: there is no such room", only)
})

// List returns the rooms, or the one that the environment asks for.
func List(tb testing.TB) []rooms.Room {
	tb.Helper()
	all, err := list()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Files returns the rooms for tests of files: those in List, and one whose kernel is given every read and write,
// where the system has io_uring.
func Files(tb testing.TB) []rooms.Room {
	tb.Helper()
	all := slices.Clone(List(tb))
	if slices.ContainsFunc(all, func(r rooms.Room) bool { return r.Name == Ring }) {
		if r, ok := fake(RingAlways); ok {
			all = append(all, r)
		}
	}
	return all
}

// Names returns the names of the rooms in List.
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
func With(name string) func(*rooms.Options) {
	return func(o *rooms.Options) {
		all, _ := list()
		for _, r := range append(rooms.List(), all...) {
			if name == "" || name == r.Name {
				o.Room = &r
				return
			}
		}
		o.Backend = name
	}
}
