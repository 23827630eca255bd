//go:build unix

package unixsock

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Pending returns the conditions that a receive would find, by a receive that only peeks. sure is false
// if the peek gives no answer, as with a listener. On BSD and System V the peek leaves the socket's
// error pending. Linux clears the error, but reports it with POLLERR.
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
	return withoutData(err, kind)
}

// peeked returns the error of a peek that got no data. It drops an error that is only about the sender's address.
// The number of bytes does not distinguish errors: x/sys returns 0 with every error on s390x, and -1 elsewhere.
func peeked(n int, err error) error {
	if n == 0 && (err == unix.EAFNOSUPPORT || err == unix.EINVAL && runtime.GOOS != "linux") {
		return nil
	}
	return err
}

// withoutData returns what a receive without data means, given its error or nil.
func withoutData(err error, kind backend.Kind) (m backend.Mask, sure bool) {
	switch {
	case kind == backend.Listener:
		return 0, false
	case kind == backend.Datagram && err == nil:
		return backend.In, true // an empty datagram
	case kind == backend.Datagram && (err == unix.ENOTCONN || err == unix.EOPNOTSUPP || err == unix.EINVAL):
		return 0, false
	case kind == backend.Datagram:
		return backend.Err, true
	case err == nil:
		return backend.In | backend.PeerClosed, true
	case err == unix.ENOTCONN:
		return backend.Dead, true // never started
	}
	// The error of a stream ends it: systems do not report errors that a connection survives.
	return backend.In | backend.Err | backend.Dead | backend.PeerClosed, true
}
