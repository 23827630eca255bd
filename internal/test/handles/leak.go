package handles

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// NoneLeft verifies that at the end of the test no descriptors are open that were not open when NoneLeft was
// called. The check runs after cleanup functions that are registered later. It covers only descriptors whose target
// begins with kind, such as "socket:".
func NoneLeft(t testing.TB, kind string) {
	t.Helper()
	of := func() []string {
		return slices.DeleteFunc(List(), func(d string) bool {
			_, to, _ := strings.Cut(d, " ")
			return !strings.HasPrefix(to, kind)
		})
	}
	before := of()
	t.Cleanup(func() {
		var after []string
		// Other goroutines may still have to close descriptors.
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			after = of()
			if !slices.ContainsFunc(after, func(d string) bool { return !slices.Contains(before, d) }) {
				return
			}
		}
		t.Errorf("open before: %q\nand after: %q", before, after)
	})
}
