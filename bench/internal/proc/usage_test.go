package proc

import "testing"

func TestSince(t *testing.T) {
	before := Usage{"1": {10, 1}, "2": {20, 2}}
	// A thread that is new counts from its start.
	after := Usage{"1": {15, 4}, "2": {20, 2}, "3": {7, 5}}
	if ns, switches, err := after.Since(before); ns != 12 || switches != 8 || err != nil {
		t.Errorf("= %d, %d, %v", ns, switches, err)
	}
	if _, _, err := before.Since(after); err == nil {
		t.Error("a thread that ended is no error")
	}
}
