package system

import (
	"github.com/socknotify/socknotify/internal/kernel/backend/epoll"
	"github.com/socknotify/socknotify/internal/kernel/backend/poll"
)

// List returns the backends of Linux, the default first.
func List() []Backend {
	return []Backend{{"epoll", epoll.New}, {"poll", poll.New}}
}

func absent(string) error { return nil }
