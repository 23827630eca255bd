//go:build unix && !linux

package sockettest

import "golang.org/x/sys/unix"

// peek returns what a receive would return, and leaves both the data and the error where they are. (Linux would take the
// error away; poll(2) reports it there.) A receive that would block is EAGAIN.
func peek(fd int) (n int, err error) {
	var b [1]byte
	for {
		n, _, err = unix.Recvfrom(fd, b[:], unix.MSG_PEEK|dontWait)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil && n == 0 && (err == unix.EAFNOSUPPORT || err == unix.EINVAL) {
		err = nil // of the sender's address: there is none
	}
	return max(n, 0), err
}

// failed reports whether the error of a peek is that of the socket, rather than that of a call which such a socket does
// not have: a listener's, or that of one which was never connected.
func failed(err error) bool {
	switch err {
	case nil, unix.EAGAIN, unix.ENOTCONN, unix.EINVAL, unix.EOPNOTSUPP, unix.EBADF, unix.ENOTSOCK:
		return false
	}
	return true
}
