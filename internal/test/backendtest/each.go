package backendtest

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/long"
)

// Each runs a test on every backend of this system, by the name that socknotify.WithBackend takes.
// With -short it runs on the default backend alone: the conformance suite, the model and the stress
// test hold the others to the same contract.
func Each(t *testing.T, test func(t *testing.T, backend string)) {
	t.Helper()
	Need(t)
	for i, b := range system.List() {
		t.Run(b.Name, func(t *testing.T) {
			if i > 0 {
				long.Only(t, "the same on another backend")
			}
			test(t, b.Name)
		})
	}
}

// Need skips a test where the system has no backend.
func Need(t testing.TB) {
	t.Helper()
	if len(system.List()) == 0 {
		t.Skip("socknotify has no backend on this system")
	}
}
