//go:build aix || illumos || solaris

package sockettest

import "golang.org/x/sys/unix"

// HidesEnd reports whether unread data hides the end of a stream.
const HidesEnd = more == 0

// beside returns what poll(2) says besides, and what a peek finds: the end of a stream and an error, unless there is
// unread data ahead of them.
func beside(fd int, revents uint16) (s State) {
	if revents&unix.POLLERR != 0 {
		s |= Err
	}
	if more != 0 && revents&more != 0 {
		s |= PeerClosed
	}
	n, err := peek(fd)
	switch {
	case failed(err) && isStream(fd):
		s |= Err | Dead | PeerClosed // it is the end of the connection, too
	case failed(err):
		s |= Err
	case err == nil && n == 0 && isStream(fd):
		s |= PeerClosed
		if revents&unix.POLLHUP != 0 {
			s |= Dead
		}
	}
	return s
}

func isStream(fd int) bool {
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && typ != unix.SOCK_DGRAM
}
