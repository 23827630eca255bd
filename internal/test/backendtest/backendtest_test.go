package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend/system"
)

// A backend that the environment asks for is the only one, or the reason why there is none is named.
func TestChosen(t *testing.T) {
	all, err := chosen("")
	if err != nil || len(all.list) < len(system.List()) {
		t.Fatal(all, err)
	}
	for _, b := range all.list {
		one, err := chosen(b.Name)
		if err != nil || len(one.list) != 1 || one.list[0].Name != b.Name {
			t.Errorf("%s: %v, %v", b.Name, one, err)
		}
	}
	for _, name := range []string{"quill", "iouring", "psn-fake-x", "psn-fakes"} {
		c, err := chosen(name)
		if !errors.Is(err, errors.ErrUnsupported) || len(c.list) != 0 || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// Every backend that tests know of is in the list, or among those that are refused with a reason.
func TestRefusedSaysWhy(t *testing.T) {
	all, err := chosen("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		_, why := chosen(name)
		listed := slices.ContainsFunc(all.list, func(b system.Backend) bool { return b.Name == name })
		refused := slices.ContainsFunc(all.refused, func(s string) bool {
			return why != nil && strings.HasPrefix(s, name+": ") && strings.HasSuffix(why.Error(), s)
		})
		if listed == refused || listed != (why == nil) {
			t.Errorf("%s: listed %v, %v; refused are %q", name, listed, why, all.refused)
		}
	}
}
