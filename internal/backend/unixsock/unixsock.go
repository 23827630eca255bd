//go:build unix

// Package unixsock tells what a descriptor is, for the backends of Unix kernels.
package unixsock

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// FD turns a handle into a descriptor number; ok is false where it cannot be one.
func FD(handle uintptr) (fd int, ok bool) {
	if handle > math.MaxInt32 {
		return -1, false
	}
	return int(handle), true
}

// Describe asks for the socket's type, which also tells a closed descriptor (EBADF) and one that
// is no socket (ENOTSOCK).
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
