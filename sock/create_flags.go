//go:build linux || freebsd || netbsd || openbsd || dragonfly || illumos

package sock

import "golang.org/x/sys/unix"

// creationFlags makes new sockets non-blocking and close-on-exec.
const creationFlags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

func newSocket(domain, typ int) (int, error) { return unix.Socket(domain, typ|creationFlags, 0) }

func newPair(domain, typ int) ([2]int, error) { return unix.Socketpair(domain, typ|creationFlags, 0) }

func sysDup(h uintptr) (uintptr, error) {
	fd, err := unix.FcntlInt(h, unix.F_DUPFD_CLOEXEC, 0)
	return uintptr(fd), err
}
