package unixsock

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// polled asks for each direction in an entry of its own: POLLHUP is that of whichever was asked for, comes
// before the data ahead of it was received, and hides POLLOUT.
func polled(fd int) kernel.Mask {
	two := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLOUT}}
	if PollNow(two[:]) <= 0 || two[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	in, out := Mask(&two[0]), Mask(&two[1])
	m := (in | out) &^ kernel.Dead
	if in&kernel.Dead != 0 {
		m |= kernel.PeerClosed | in&out&kernel.Dead
	}
	if out&kernel.Dead != 0 {
		m |= kernel.Out // it would fail, but not block
	}
	return m
}
