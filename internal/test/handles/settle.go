package handles

import (
	"slices"
	"time"
)

// A testingT is a *testing.T or a *rapid.T.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Settle waits until no more descriptors are open than in before, an earlier result of List. It waits because other
// goroutines may still be closing descriptors. If that takes longer than the timeout, it fails the test with the
// new descriptors.
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
