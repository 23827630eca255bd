package wine

import "testing"

// Each deviation that can be probed is one: Windows has none of them. Under Wine the test prints which this one has.
func TestProbes(t *testing.T) {
	for d, here := range probed() {
		if here && Version() == "" {
			t.Errorf("Windows deviates: %s", d)
		}
		t.Logf("%-5v %s", here, d)
	}
	if Version() != "" && !AsksServer.Here() {
		t.Error("a deviation that is not probed is not here")
	}
}
