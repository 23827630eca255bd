//go:build darwin || aix || (solaris && !illumos)

package sock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// New descriptors are not yet to be closed by a program that is started, so none is started meanwhile.
// The calls under the lock do not block, unless somebody has put a listener back into blocking mode.

func newSocket(domain, typ int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(domain, typ, 0)
	if err != nil {
		return -1, err
	}
	return fd, prepare(fd)
}

func newPair(domain, typ int) ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(domain, typ, 0)
	if err != nil {
		return fds, err
	}
	if err = prepare(fds[0]); err != nil {
		unix.Close(fds[1])
	} else if err = prepare(fds[1]); err != nil {
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
	return c, prepare(c)
}

// prepare makes a new descriptor what it should be, or closes it.
func prepare(fd int) error {
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
