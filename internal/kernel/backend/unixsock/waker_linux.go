package unixsock

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Waker makes a blocked poll(2) return. On this system it is an eventfd: one descriptor.
type Waker struct{ fd int }

// NewWaker opens a Waker.
func NewWaker() (Waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return Waker{}, os.NewSyscallError("eventfd", err)
	}
	return Waker{fd}, nil
}

// Entry returns the entry that a poll(2) needs to be woken.
func (w Waker) Entry() unix.PollFd { return unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN} }

// Wake makes w readable.
func (w Waker) Wake() {
	one := [8]byte{1}
	unix.Write(w.fd, one[:])
}

// Reset makes w unreadable until the next Wake.
func (w Waker) Reset() {
	var count [8]byte
	unix.Read(w.fd, count[:])
}

// Close closes the descriptor of w.
func (w Waker) Close() error {
	if err := unix.Close(w.fd); err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
