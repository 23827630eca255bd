package unixsock

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Bell ends a blocked poll(2). Here it is an eventfd: one descriptor.
type Bell struct{ fd int }

// NewBell opens one.
func NewBell() (Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return Bell{}, os.NewSyscallError("eventfd", err)
	}
	return Bell{fd}, nil
}

// Entry is what a poll(2) that it is to end has to have.
func (b Bell) Entry() unix.PollFd { return unix.PollFd{Fd: int32(b.fd), Events: unix.POLLIN} }

// Ring makes it readable.
func (b Bell) Ring() {
	one := [8]byte{1}
	unix.Write(b.fd, one[:])
}

// Quiet makes it unreadable until it is rung again.
func (b Bell) Quiet() {
	var count [8]byte
	unix.Read(b.fd, count[:])
}

// Close closes it.
func (b Bell) Close() error {
	if err := unix.Close(b.fd); err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
