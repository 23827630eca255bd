package rooms

import (
	"errors"

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

// Absent tells why a room is not in List. The error is errors.ErrUnsupported.
func Absent(name string) error {
	for _, r := range unsure() {
		if r.Name == name {
			return r.probe()
		}
	}
	return errors.ErrUnsupported
}
