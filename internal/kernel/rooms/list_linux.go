package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/epoll"
	"github.com/socknotify/socknotify/internal/kernel/poll"
	"github.com/socknotify/socknotify/internal/ring"
)

// List returns the backends of Linux.
func List() []Room {
	return []Room{{"epoll", epoll.New}, {"poll", poll.New}}
}

// WithRing returns the backend with io_uring for overlapped operations, where both allow it, and otherwise the backend
// itself.
func WithRing(r Room) Room {
	if r.Name == "epoll" && ring.Probe() == nil {
		r.Open = ring.New
	}
	return r
}

func absent(string) error { return nil }
