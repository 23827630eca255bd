//go:build unix && !linux && !darwin

package unixsock

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// polled returns the results of poll(2) for a socket.
func polled(fd int) backend.Mask {
	one := [1]unix.PollFd{Poll(fd, backend.Out|backend.PeerClosed)}
	if PollNow(one[:]) <= 0 || one[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	return Mask(&one[0])
}
