// Package backends is for tests that run on every kernel of this system.
package backends

import (
	"testing"

	"github.com/socknotify/socknotify"
)

// Each runs a test on every kernel, by the name that socknotify.WithBackend wants.
func Each(t *testing.T, test func(t *testing.T, backend string)) {
	t.Helper()
	all := socknotify.Backends()
	if len(all) == 0 {
		t.Skip("socknotify has no kernel on this system")
	}
	for _, b := range all {
		t.Run(b, func(t *testing.T) { test(t, b) })
	}
}
