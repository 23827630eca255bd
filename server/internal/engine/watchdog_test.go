package engine

import "testing"

// Stats reads the clock before it looks at the workers. A handler call that has begun since has the
// age 0.
func TestWatchdogClock(t *testing.T) {
	if d := (&Watchdog{Now: 5}).Ran(&Activity{Busy: true, Since: 6}); d != 0 {
		t.Errorf("a handler that began just now has run for %v", d)
	}
}
