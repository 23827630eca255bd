package conformance

import (
	"slices"
	"testing"
)

// A case that is left out on some system must be one that is run elsewhere, and be left out for one
// reason.
func TestAbsencesExist(t *testing.T) {
	names := make(map[string]bool)
	for _, sentence := range Sentences() {
		checks, err := checksOf(sentence)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range checks {
			names[sentence+"/"+c.name] = true
		}
	}
	known := slices.Concat(notLinux, []string{"linux"})
	type place struct{ name, system string }
	reasons := make(map[place]string)
	for _, a := range absences {
		for _, name := range a.cases {
			if !names[name] {
				t.Errorf("%s (%s%s) is no case", name, a.why, a.wine)
			}
			for _, system := range a.on {
				if !slices.Contains(known, system) {
					t.Errorf("%s (%s): %q is no system", name, a.why, system)
				}
				if system == "linux" {
					t.Errorf("%s (%s) is left out on Linux, which runs every case", name, a.why)
				}
				if other := reasons[place{name, system}]; other != "" {
					t.Errorf("%s on %s: %s; and %s", name, system, other, a.why)
				}
				reasons[place{name, system}] = a.why
			}
		}
	}
}
