package sockettest

import "golang.org/x/sys/unix"

const more = unix.POLLRDHUP

// HidesEnd reports whether unread data hides the end of a stream.
const HidesEnd = false

// beside returns what else poll(2) has said: on Linux, everything.
func beside(_ int, revents uint16) (s State) {
	if revents&unix.POLLERR != 0 {
		s |= Err
	}
	if revents&unix.POLLRDHUP != 0 {
		s |= PeerClosed
	}
	if revents&unix.POLLHUP != 0 {
		s |= Dead
	}
	return s
}
