package overlapped

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// onFileBackends runs a test on every backend. What the process has once it has used a port, a file and a socket, it has by
// then.
func onFileBackends(t *testing.T, f func(t *testing.T, open func() (backend.Poller, error))) {
	for _, b := range backendtest.List(t) {
		k, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		useOnce(t, newPort[int](t, k, b.Name))
		t.Run(b.Name, func(t *testing.T) { f(t, b.Open) })
	}
}

func useOnce(t *testing.T, p *socknotify.Port[int]) {
	t.Helper()
	defer p.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var o Op[int]
	if err := WriteAt(p, f, 1, []byte("x"), 0, &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 1, nil)
	x, _ := newPair(t)
	if err := Send(p, x, 1, []byte("x"), &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 1, nil)
}
