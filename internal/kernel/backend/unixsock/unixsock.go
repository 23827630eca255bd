//go:build unix

// Package unixsock describes and polls sockets for the backends of Unix kernels.
package unixsock

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// FD converts a handle to a descriptor number. ok is false if the handle cannot be one.
func FD(handle uintptr) (fd int, ok bool) {
	if handle > math.MaxInt32 {
		return -1, false
	}
	return int(handle), true
}

// Describe returns the kind of a socket. The error is EBADF for a closed descriptor, and ENOTSOCK
// for one that is no socket.
func Describe(handle uintptr) (backend.Kind, error) {
	fd, ok := FD(handle)
	if !ok {
		return 0, unix.EBADF
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return 0, err
	}
	if typ != unix.SOCK_STREAM && typ != unix.SOCK_SEQPACKET {
		return backend.Datagram, nil
	}
	switch on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); {
	case err == nil && on != 0, err != nil && seemsToListen(fd):
		return backend.Listener, nil
	}
	return backend.Stream, nil
}

// inParts is PollNow for entries that the system has refused to poll at once. It refuses more
// entries than the process may have descriptors (that limit may have been lowered after they were
// opened), or than it has memory for.
func inParts(fds []unix.PollFd) int {
	half := len(fds) / 2
	if half == 0 {
		return -1
	}
	n := PollNow(fds[:half])
	if n < 0 {
		return n
	}
	k := PollNow(fds[half:])
	if k < 0 {
		return k
	}
	return n + k
}
