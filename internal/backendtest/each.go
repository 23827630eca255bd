package backendtest

import (
	"testing"

	"github.com/socknotify/socknotify/internal/backend/system"
)

// Each runs a test on every backend of this system, by the name that socknotify.WithBackend takes.
func Each(t *testing.T, test func(t *testing.T, backend string)) {
	t.Helper()
	Need(t)
	for _, b := range system.List() {
		t.Run(b.Name, func(t *testing.T) { test(t, b.Name) })
	}
}

// Need skips a test where the system has no backend.
func Need(t testing.TB) {
	t.Helper()
	if len(system.List()) == 0 {
		t.Skip("socknotify has no backend on this system")
	}
}
