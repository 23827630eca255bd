package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/backend/system"
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
	for _, name := range []string{"quill", "iouring", psnFakeNamed("x")} {
		c, err := chosen(name)
		if !errors.Is(err, errors.ErrUnsupported) || len(c.list) != 0 || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func psnFakeNamed(seed string) string { return "psn-fake-" + seed }

// Every backend that tests know of is in the list, or among those that are refused with a reason.
func TestRefusedSaysWhy(t *testing.T) {
	all, err := chosen("")
	if err != nil {
		t.Fatal(err)
	}
	_, refused := fakes()
	for name, why := range refused {
		if why == nil || !slices.ContainsFunc(all.refused, func(s string) bool { return strings.HasPrefix(s, name+": ") }) {
			t.Errorf("%s is refused for %v, which is not in %q", name, why, all.refused)
		}
		if _, err := chosen(name); !errors.Is(err, why) {
			t.Errorf("%s: %v; want %v", name, err, why)
		}
	}
}
