package socknotify_test

import (
	"errors"
	"testing"

	. "github.com/socknotify/socknotify"
)

// On every system there is a port, or the error that says that there is none.
func TestNewOnThisSystem(t *testing.T) {
	p, err := New[int]()
	if len(Backends()) == 0 {
		if !errors.Is(err, errors.ErrUnsupported) || p != nil {
			t.Fatalf("New without any backend = %v, %v", p, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
