package handles

import (
	"slices"
	"time"
)

// A failer is a test, or one of drawn values.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Settle waits until no more descriptors are open than before, which List told, because others may still be
// closing theirs. It fails the test with those that are new if that does not come to pass.
func Settle(t failer, before []string, patience time.Duration) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
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
