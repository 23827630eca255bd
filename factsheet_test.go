package socknotify_test

import (
	"testing"

	"github.com/socknotify/socknotify/internal/facts"
)

// TestFactSheet prints what this system's kernels say of sockets: go test -run FactSheet -v
func TestFactSheet(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for what does not come")
	}
	table, errs := facts.Sheet()
	t.Log("\n" + table)
	for _, err := range errs {
		t.Error(err)
	}
}
