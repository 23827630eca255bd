//go:build unix

package facts

import (
	"golang.org/x/sys/unix"
)

// peek reports whether a receive would not block. The socket must be non-blocking.
func peek(h uintptr) bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(int(h), b[:], unix.MSG_PEEK)
	return err != unix.EAGAIN && err != unix.EINTR
}

func sendUrgent(h uintptr) error { return unix.Send(int(h), []byte{'!'}, unix.MSG_OOB) }

func duplicate(h uintptr) (dup, error) {
	d, err := unix.Dup(int(h))
	if err == nil {
		unix.CloseOnExec(d)
	}
	return dup(d), err
}

func (d dup) Close() error { return unix.Close(int(d)) }

const errNotConnected = unix.ENOTCONN

func version() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "an unknown release"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
