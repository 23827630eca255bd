package unixsock

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// PollOne polls one socket and returns the conditions that hold. A reset sets the error of a TCP socket
// first and its state a moment later, both under the socket's lock. PollOne therefore takes that lock
// before it polls, by reading TCP_INFO.
func PollOne(handle uintptr) backend.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	_, _ = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	one := [1]unix.PollFd{Poll(fd, backend.In|backend.Out|backend.PeerClosed)}
	if PollNow(one[:]) <= 0 || one[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	return Mask(&one[0])
}
