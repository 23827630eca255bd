//go:build unix && !linux

package unixsock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// Poll is the entry of a poll(2) for an interest. Input is always asked for: here poll(2) says of a pending
// error, and mostly of the end of a stream, that there is something to receive.
func Poll(fd int, interest backend.Mask) unix.PollFd {
	f := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	if interest&backend.Out != 0 {
		f.Events |= unix.POLLOUT
	}
	if interest&backend.PeerClosed != 0 {
		f.Events |= rdhup
	}
	return f
}

// Mask translates poll(2)'s results, as they are: see Vague.
func Mask(f *unix.PollFd) backend.Mask {
	var m backend.Mask
	if f.Revents&unix.POLLIN != 0 {
		m |= backend.In
	}
	if f.Revents&unix.POLLOUT != 0 {
		m |= backend.Out
	}
	if f.Revents&unix.POLLERR != 0 {
		m |= backend.Err
	}
	if f.Revents&unix.POLLHUP != 0 {
		m |= backend.Dead
	}
	if f.Revents&rdhup != 0 {
		m |= backend.PeerClosed
	}
	return m
}

// Vague are the results of a poll(2) that only Look explains. Input can be the end of the stream or an
// error, and POLLHUP is one direction's on macOS.
const Vague = backend.In | backend.Err | backend.Dead

// PollNow is poll(2) that does not block, in parts where the system does not take all entries at once. It returns
// how many entries have results, or a negative number where the system refused even one.
func PollNow(fds []unix.PollFd) int {
	for {
		n, err := unix.Poll(fds, 0)
		if err == nil {
			return n
		}
		if err != unix.EINTR {
			return inParts(fds)
		}
		// A caller that is about to park relies on this look.
	}
}

// longest keeps a time-out in what every poll(2) takes.
const longest = time.Hour

// Wait is poll(2) that blocks for at most limit, rounded up to a millisecond. It may end early, with no
// results.
func Wait(fds []unix.PollFd, limit time.Duration) (int, error) {
	limit = min(limit, longest)
	n, err := unix.Poll(fds, int((limit+time.Millisecond-1)/time.Millisecond))
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}
