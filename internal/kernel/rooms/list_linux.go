package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/epoll"
	"github.com/socknotify/socknotify/internal/kernel/iouring"
	"github.com/socknotify/socknotify/internal/kernel/poll"
)

func sure() []Room {
	return []Room{{"epoll", epoll.New}, {"poll", poll.New}}
}

func unsure() []probed {
	return []probed{{Room{"iouring", iouring.New}, iouring.Probe}}
}
