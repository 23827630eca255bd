package leaks_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A goroutine that ends later than goleak would wait is waited for, and one that was there before is not.
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
		t.Error("nothing was left behind")
	}
	time.AfterFunc(time.Second, func() { close(end) })
	if err := leaks.Find(before); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("the goroutine has not ended")
	}
}
