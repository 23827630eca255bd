package conformance

import (
	"testing"

	"github.com/socknotify/socknotify/internal/wine"
)

// A case that is left out under Wine must be one that is run elsewhere.
func TestWineCasesExist(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range checks {
		names[c.sentence+"/"+c.name] = true
	}
	for name, why := range wine.Cases() {
		if !names[name] {
			t.Errorf("%s (%s) is no case", name, why)
		}
	}
}
