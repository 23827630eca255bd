//go:build unix && !linux

package unixsock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Poll returns the entry of a poll(2) for an interest. The entry always asks for input, because on
// these systems poll(2) reports a pending error, and mostly the end of a stream, as input.
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

// Mask translates the results of poll(2) without resolving the ambiguous ones (see Ambiguous).
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

// Ambiguous are the results of a poll(2) that only PollOne can resolve. Input can be the end of the
// stream or an error, and POLLHUP is about one direction on macOS.
const Ambiguous = backend.In | backend.Err | backend.Dead

// PollNow calls poll(2) without blocking, in parts if the system does not take all entries at once.
// It returns the number of entries with results, or a negative number if the system refused even
// one entry.
func PollNow(fds []unix.PollFd) int {
	for {
		n, err := unix.Poll(fds, 0)
		if err == nil {
			return n
		}
		if err != unix.EINTR {
			return inParts(fds)
		}
		// A caller that is about to park relies on this poll.
	}
}

// longest limits a timeout to what every poll(2) accepts.
const longest = time.Hour

// Wait calls poll(2) and blocks for at most limit, rounded up to a millisecond. It may return
// early, without results.
func Wait(fds []unix.PollFd, limit time.Duration) (int, error) {
	limit = min(limit, longest)
	n, err := unix.Poll(fds, int((limit+time.Millisecond-1)/time.Millisecond))
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}

// PollOne polls one socket, peeks at its input, and returns the conditions that hold.
func PollOne(handle uintptr) backend.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	m := polled(fd)
	if m&backend.In == 0 {
		return m
	}
	// If a receive gives no answer, the socket is a listener, and poll(2) is right about it.
	if p, sure := Pending(fd); sure {
		m = m&^backend.In | p
	}
	if m&(backend.Dead|backend.In) == backend.Dead|backend.In {
		m |= backend.PeerClosed // a stream that was never started has nothing to receive
	}
	return m
}
