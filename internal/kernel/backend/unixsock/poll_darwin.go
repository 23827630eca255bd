package unixsock

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// polled polls each direction with an entry of its own. On macOS, POLLHUP is about the direction that was asked
// for, is reported before the data in front of it was received, and hides POLLOUT.
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
		m |= backend.Out // a send would fail, but not block
	}
	return m
}
