package parking

import (
	"testing"

	"github.com/socknotify/socknotify/internal/test/await"
)

// newLot returns a new lot. At the end of the test it closes the lot and verifies that nothing is left behind.
func newLot(t testing.TB, config Config) *Lot {
	t.Helper()
	l, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer func() {
			if s := l.Counts(); s.Parked != 0 || s.Running != 0 {
				t.Errorf("left behind: %+v, %d open", s, l.open.Load())
			}
		}()
		l.Close()
		await.Receive(t, "the lot is closed", l.ended)
		l.workers.exited.Wait()
	})
	return l
}
