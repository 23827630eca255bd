// Package handles provides tests with the list of the process's open descriptors or handles. On
// Windows it can also create a handle with a given number.
package handles

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// NoneLeft verifies that at the end of the test no descriptors are open that were not open when
// NoneLeft was called. The check runs after cleanup functions that are registered later. It covers
// only descriptors whose target begins with kind, such as "socket:".
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

// A testingT is a *testing.T or a *rapid.T.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Settle waits until no more descriptors are open than in before, an earlier result of List. It
// waits because other goroutines may still be closing descriptors. If that takes longer than the
// timeout, it fails the test with the new descriptors.
func Settle(t testingT, before []string, timeout time.Duration) {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		after := List()
		if len(after) <= len(before) {
			return
		}
		if time.Now().After(end) {
			isOld := func(d string) bool { return slices.Contains(before, d) }
			t.Fatalf("%d descriptors before, %d after; new ones: %q", len(before), len(after), slices.DeleteFunc(after, isOld))
		}
	}
}
