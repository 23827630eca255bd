package stream

import (
	"context"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/park"
)

func TestMain(m *testing.M) {
	leaks.Main(m)
}

// newLot returns a new lot. At the end of the test it closes the lot and verifies that nothing is left behind.
func newLot(t testing.TB, config park.Config) *park.Lot {
	t.Helper()
	l, err := park.New(config)
	check.OK(t, err)
	t.Cleanup(func() {
		check.OK(t, l.Shutdown(context.Background()))
		if s := l.Stats(); s.Parked != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return l
}
