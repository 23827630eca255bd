//go:build unix

// Package sockettest is for tests on Unix systems: it asks the system what holds of a socket, without a port, and does
// to descriptors what package sock does not. Its calls are those that every Unix has, so that what runs on Linux is
// what runs on the others; only what poll(2) does not report has a file for each family of systems.
package sockettest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A State is a set of conditions that hold of a socket.
type State uint8

// The conditions.
const (
	In         State = 1 << iota // a receive or an accept would not block
	Out                          // a send would not block
	Urgent                       // urgent data is pending
	Err                          // an error is pending
	PeerClosed                   // the peer's direction is shut
	Dead                         // both directions are
)

// Now returns what holds of a socket. It waits for nothing and leaves a pending error where it is.
func Now(fd int) State {
	s, revents := polled(fd)
	if revents&unix.POLLNVAL != 0 {
		return 0
	}
	return s | beside(fd, revents)
}

// polled returns what poll(2) says of each direction, and all its results.
func polled(fd int) (s State, revents uint16) {
	f := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLPRI | more}}
	for {
		_, err := unix.Poll(f, 0)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			panic(fmt.Sprint("poll: ", err))
		}
	}
	revents = uint16(f[0].Revents)
	if revents&unix.POLLIN != 0 {
		s |= In
	}
	if revents&unix.POLLOUT != 0 {
		s |= Out
	}
	if revents&unix.POLLPRI != 0 {
		s |= Urgent
	}
	return s, revents
}
