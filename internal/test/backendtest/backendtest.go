// Package backendtest lists the backends that tests run on: those of the system, and the fake ones. Only tests
// import it.
package backendtest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend/system"
)

// A choice is the backends that tests run on, and why others are not among them.
type choice struct {
	list    []system.Backend
	refused []string
}

// choose chooses once: the ports of a test must be on one fake system.
var choose = sync.OnceValues(func() (choice, error) { return chosen(os.Getenv("SOCKNOTIFY_BACKEND")) })

// others are further backends that tests run on, unless this system refuses them: the fake one on
// Linux, and one that is in the list of Windows only where Windows has it.
var others = map[string][]string{"linux": {"psn-fake"}, "windows": {"psn"}}[runtime.GOOS]

func chosen(only string) (c choice, err error) {
	if only != "" {
		b, err := find(only)
		if err != nil {
			return c, fmt.Errorf("SOCKNOTIFY_BACKEND=%s: %w", only, err)
		}
		return choice{list: []system.Backend{b}}, nil
	}
	c.list = system.List()
	for _, name := range others {
		if b, err := find(name); err != nil {
			c.refused = append(c.refused, fmt.Sprintf("%s: %v", name, err))
		} else if _, listed := system.Find(name); !listed {
			c.list = append(c.list, b)
		}
	}
	return c, nil
}

// find returns a backend of the system or a fake one, or the reason why there is none.
func find(name string) (system.Backend, error) {
	b, ok := system.Find(name)
	if ok {
		return b, nil
	}
	b, err := fake(name)
	if err == errUnknown {
		err = system.Absent(name)
	}
	return b, err
}

// errUnknown is of a name that no fake backend has.
var errUnknown = errors.New("there is no such backend")

// List returns the backends, or the one that the environment asks for. It logs which are left out, and why.
func List(tb testing.TB) []system.Backend {
	tb.Helper()
	c, err := choose()
	if err != nil {
		tb.Fatal(err)
	}
	for _, why := range c.refused {
		tb.Log("without the backend ", why)
	}
	return c.list
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

// With is an option of socknotify.New, as WithBackend is, for any backend in List. No name is the system's
// default, whatever the environment asks for.
func With(name string) func(*system.Options) {
	return func(o *system.Options) {
		c, _ := choose()
		for _, r := range append(system.List(), c.list...) {
			if name == "" || name == r.Name {
				o.Backend = &r
				return
			}
		}
		o.Name = name
	}
}
