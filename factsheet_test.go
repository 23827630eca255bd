package socknotify_test

import (
	"testing"

	"github.com/socknotify/socknotify/internal/facts"
	"github.com/socknotify/socknotify/internal/test/long"
)

// TestFactSheet prints what this system's kernels say of sockets: go test -run FactSheet -v
func TestFactSheet(t *testing.T) {
	long.Only(t, "it waits for what does not come")
	table, errs := facts.Sheet()
	t.Log("\n" + table)
	for _, err := range errs {
		t.Error(err)
	}
}
