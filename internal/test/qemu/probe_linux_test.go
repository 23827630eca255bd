package qemu

import "testing"

// Linux has none of the deviations. Under qemu the test prints which this one has.
func TestProbes(t *testing.T) {
	for d, here := range probed() {
		if here && !emulated() {
			t.Errorf("Linux deviates: %s", d)
		}
		if d.Here() != (here && emulated()) {
			t.Errorf("Here = %v: %s", d.Here(), d)
		}
		t.Logf("%-5v %s", here, d)
	}
}
