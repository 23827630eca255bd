package proc

import "testing"

func TestSince(t *testing.T) {
	before := Usage{map[string]int64{"1": 10, "2": 20}, map[string]int64{"1": 1, "2": 2}}
	// A thread that is new counts from its start.
	after := Usage{map[string]int64{"1": 15, "2": 20, "3": 7}, map[string]int64{"1": 4, "2": 2, "3": 5}}
	if ns, switches, err := after.Since(before); ns != 12 || switches != 8 || err != nil {
		t.Errorf("= %d, %d, %v", ns, switches, err)
	}
	if _, _, err := before.Since(after); err == nil {
		t.Error("a thread that ended is no error")
	}
}
