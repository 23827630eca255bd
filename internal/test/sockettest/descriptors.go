//go:build unix

package sockettest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Dup returns a duplicate of a descriptor: the lowest number that is free from least on.
func Dup(fd uintptr, least int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD, least)
	if err == nil {
		unix.CloseOnExec(dup)
	}
	return dup, err
}

// Become makes a number name what another one names, and closes what it named before.
func Become(number int, fd uintptr) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	err := unix.Dup2(int(fd), number)
	if err == nil {
		unix.CloseOnExec(number)
	}
	return err
}

// Pipe returns the two ends of a pipe.
func Pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return -1, -1, err
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	return ends[0], ends[1], nil
}
