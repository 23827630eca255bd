package ring

import (
	"errors"
	"testing"
)

// If Probe returns nil, a Poller can be opened. Otherwise the error wraps ErrUnsupported.
func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v is not ErrUnsupported", err)
		}
		t.Skip(err)
	}
	if p := newPoller(t, false); p.Least() != leastExchanges || p.Transferring() {
		t.Errorf("Least %d, Transferring %t", p.Least(), p.Transferring())
	}
}
