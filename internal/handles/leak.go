package handles

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// NoneLeft fails a test that ends, its later clean-ups included, with other descriptors open than now. Those
// that other goroutines open at any time can be left out, by what the others are for, such as "socket:".
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
		// What another goroutine still uses is closed when that is done with it.
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			after = of()
			if !slices.ContainsFunc(after, func(d string) bool { return !slices.Contains(before, d) }) {
				return
			}
		}
		t.Errorf("open before: %q\nand after: %q", before, after)
	})
}
