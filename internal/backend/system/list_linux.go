package system

import (
	"github.com/socknotify/socknotify/internal/backend/epoll"
	"github.com/socknotify/socknotify/internal/backend/poll"
	"github.com/socknotify/socknotify/internal/ring"
)

// List returns the backends of Linux, the default first.
func List() []Backend {
	return []Backend{{"epoll", epoll.New}, {"poll", poll.New}}
}

// WithRing returns the backend with io_uring for overlapped operations, if the backend and the kernel allow it, and
// otherwise the backend itself.
func WithRing(r Backend) Backend {
	if r.Name == "epoll" && ring.Probe() == nil {
		r.Open = ring.New
	}
	return r
}

func absent(string) error { return nil }
