package qemu

import "testing"

// Linux has none of the deviations, except for io_uring, which came with Linux 5.1 and can be left out of a kernel. Under
// qemu the test prints which this one has.
func TestProbes(t *testing.T) {
	for d, here := range probed() {
		if here && !emulated() && d != HasNoRing {
			t.Errorf("Linux deviates: %s", d)
		}
		if d.Here() != (here && emulated()) {
			t.Errorf("Here = %v: %s", d.Here(), d)
		}
		t.Logf("%-5v %s", here, d)
	}
}
