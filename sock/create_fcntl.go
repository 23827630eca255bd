//go:build darwin || aix || (solaris && !illumos)

package sock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// These systems cannot create a descriptor with the close-on-exec flag. syscall.ForkLock prevents a fork until the
// flag is set. The calls under the lock do not block, unless the program has put a listener back into blocking
// mode.

func newSocket(domain, typ int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(domain, typ, 0)
	if err != nil {
		return -1, err
	}
	return fd, setFlags(fd)
}

func newPair(domain, typ int) ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(domain, typ, 0)
	if err != nil {
		return fds, err
	}
	if err = setFlags(fds[0]); err != nil {
		unix.Close(fds[1])
	} else if err = setFlags(fds[1]); err != nil {
		unix.Close(fds[0])
	}
	return fds, err
}

func acceptSocket(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	c, _, err := unix.Accept(fd)
	if err != nil {
		return -1, err
	}
	return c, setFlags(c)
}

func sysDup(h uintptr) (uintptr, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.FcntlInt(h, unix.F_DUPFD, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return uintptr(fd), err
}

// setFlags makes a new descriptor non-blocking, close-on-exec and free of SIGPIPE. If it fails, it closes the
// descriptor.
func setFlags(fd int) error {
	unix.CloseOnExec(fd)
	err := unix.SetNonblock(fd, true)
	if err == nil {
		err = noSignal(fd)
	}
	if err != nil {
		unix.Close(fd)
	}
	return err
}
