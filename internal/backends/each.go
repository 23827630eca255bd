// Package backends is for tests that run on every kernel of this system, or that need one.
package backends

import (
	"testing"

	"github.com/socknotify/socknotify"
)

// Each runs a test on every kernel, by the name that socknotify.WithBackend wants.
func Each(t *testing.T, test func(t *testing.T, backend string)) {
	t.Helper()
	Need(t)
	for _, b := range socknotify.Backends() {
		t.Run(b, func(t *testing.T) { test(t, b) })
	}
}

// Need skips a test where there is no kernel.
func Need(t testing.TB) {
	t.Helper()
	if len(socknotify.Backends()) == 0 {
		t.Skip("socknotify has no kernel on this system")
	}
}
