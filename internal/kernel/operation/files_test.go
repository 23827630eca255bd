package operation_test

import (
	"errors"
	"os"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/operation"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/overlapped"
)

// Canceling a read that no worker has begun wakes a waiter for its completion.
func TestCanceledReadWakes(t *testing.T) {
	p, err := socknotify.New[string](socknotify.WithBackend("poll")) // which does not read files by itself
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer operation.Occupy(port.Of(p))()
	var o overlapped.Op[string]
	if err := overlapped.ReadAt(p, f, "k", make([]byte, 1), 0, &o); err != nil {
		t.Fatal(err)
	}
	woken := make(chan socknotify.Notification[string], 1)
	go func() { woken <- porttest.Next(t, p) }()
	porttest.Waiting(t, p, 1)
	if err := overlapped.Cancel(p, &o); err != nil {
		t.Fatal(err)
	}
	if nt := <-woken; overlapped.Of(&nt) != &o {
		t.Fatalf("%+v", nt)
	}
	if _, err := o.Result(); !errors.Is(err, overlapped.ErrCanceled) {
		t.Error(err)
	}
}
