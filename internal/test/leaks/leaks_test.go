package leaks_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Find waits for a goroutine that exits later than goleak would wait, and ignores a goroutine that was there before.
func TestFind(t *testing.T) {
	stop, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { <-stop }()
	defer close(stop)
	before := goleak.IgnoreCurrent()
	go func() {
		<-end
		close(ended)
	}()
	if err := goleak.Find(before); err == nil {
		t.Error("goleak finds no goroutine")
	}
	time.AfterFunc(time.Second, func() { close(end) }) // later than goleak waits, which has no clock
	if err := leaks.Find(before); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Find returned before the goroutine has exited")
	}
}
