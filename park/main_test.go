package park

import (
	"context"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) {
	if !runRole() {
		leaks.Main(m)
	}
}

// newLot returns a new lot. At the end of the test it closes the lot and verifies that nothing is left behind.
func newLot(t testing.TB, config Config) *Lot {
	t.Helper()
	l, err := New(config)
	check.OK(t, err)
	t.Cleanup(func() {
		check.OK(t, l.Shutdown(context.Background()))
		if s := l.Stats(); s.Parked != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return l
}
