// Package backendtest lists the backends that tests run on: those of the system, and the fake ones. Only tests
// import it.
package backendtest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/backend/system"
)

// A choice is the backends that tests run on, and why others are not among them.
type choice struct {
	list    []system.Backend
	refused []string
}

// choose chooses once: the ports of a test must be on one fake system.
var choose = sync.OnceValues(func() (choice, error) { return chosen(os.Getenv("SOCKNOTIFY_BACKEND")) })

func chosen(only string) (choice, error) {
	var c choice
	fake, whyNot := fakes()
	all := append(system.List(), fake...)
	if only == "" {
		for name, why := range whyNot {
			c.refused = append(c.refused, fmt.Sprintf("%s: %v", name, why))
		}
		for _, name := range preferred {
			if _, ok := system.Find(name); !ok {
				c.refused = append(c.refused, fmt.Sprintf("%s: %v", name, system.Absent(name)))
			}
		}
		slices.Sort(c.refused)
		c.list = all
		return c, nil
	}
	for _, r := range all {
		if r.Name == only {
			c.list = []system.Backend{r}
			return c, nil
		}
	}
	r, why := fakeNamed(only)
	if errors.Is(why, errUnknown) {
		why = system.Absent(only)
	}
	if why != nil {
		return c, fmt.Errorf("SOCKNOTIFY_BACKEND=%s: %w", only, why)
	}
	c.list = []system.Backend{r}
	return c, nil
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
