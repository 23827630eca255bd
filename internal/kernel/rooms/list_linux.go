package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/epoll"
	"github.com/socknotify/socknotify/internal/kernel/poll"
)

// List returns the rooms of Linux.
func List() []Room {
	return []Room{{"epoll", epoll.New}, {"poll", poll.New}}
}
