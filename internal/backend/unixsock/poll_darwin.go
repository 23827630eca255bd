package unixsock

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// polled asks for each direction in an entry of its own: POLLHUP is that of whichever was asked for, comes
// before the data ahead of it was received, and hides POLLOUT.
func polled(fd int) backend.Mask {
	two := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLOUT}}
	if PollNow(two[:]) <= 0 || two[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	in, out := Mask(&two[0]), Mask(&two[1])
	m := (in | out) &^ backend.Dead
	if in&backend.Dead != 0 {
		m |= backend.PeerClosed | in&out&backend.Dead
	}
	if out&backend.Dead != 0 {
		m |= backend.Out // it would fail, but not block
	}
	return m
}
