//go:build unix

package unixsock

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// Pending tells what a receive would come to, by one that only peeks; sure is false where that cannot
// tell, as of a listener. The error of the socket stays where it is on BSD and System V. (Not so on Linux,
// which has POLLERR to tell.)
func Pending(fd int) (m backend.Mask, sure bool) {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|dontWait)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(fd, b[:], unix.MSG_PEEK|dontWait)
	}
	switch {
	case err == unix.EAGAIN:
		return 0, true
	case n > 0:
		return backend.In, true
	}
	err = peeked(n, err)
	kind, bad := Describe(uintptr(fd))
	if bad != nil {
		return 0, false
	}
	return nothing(err, kind)
}

// peeked returns the error of a peek that got nothing, without one that is only about the sender's address. The
// number of bytes alone says little: x/sys returns 0 with every error on s390x, and -1 elsewhere.
func peeked(n int, err error) error {
	if n == 0 && (err == unix.EAFNOSUPPORT || err == unix.EINVAL && runtime.GOOS != "linux") {
		return nil
	}
	return err
}

// nothing explains a receive that got nothing, for an error or none.
func nothing(err error, kind backend.Kind) (m backend.Mask, sure bool) {
	switch {
	case kind == backend.Listener:
		return 0, false
	case kind == backend.Datagram && err == nil:
		return backend.In, true // an empty one
	case kind == backend.Datagram && (err == unix.ENOTCONN || err == unix.EOPNOTSUPP || err == unix.EINVAL):
		return 0, false
	case kind == backend.Datagram:
		return backend.Err, true
	case err == nil:
		return backend.In | backend.PeerClosed, true
	case err == unix.ENOTCONN:
		return backend.Dead, true // never started
	}
	// The error of a stream is its end: what a connection survives the system keeps to itself.
	return backend.In | backend.Err | backend.Dead | backend.PeerClosed, true
}
