//go:build unix && !linux

package unixsock

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Bell ends a blocked poll(2). Here it is a pipe: two descriptors.
type Bell struct{ r, w int }

// NewBell opens one.
func NewBell() (Bell, error) {
	var p [2]int
	// Not every system can set the flags at once, so no child may be made in between.
	syscall.ForkLock.RLock()
	err := unix.Pipe(p[:])
	if err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return Bell{}, os.NewSyscallError("pipe", err)
	}
	b := Bell{p[0], p[1]}
	for _, fd := range p {
		if err := unix.SetNonblock(fd, true); err != nil {
			b.Close()
			return Bell{}, os.NewSyscallError("fcntl", err)
		}
	}
	return b, nil
}

// Entry is what a poll(2) that it is to end has to have.
func (b Bell) Entry() unix.PollFd { return unix.PollFd{Fd: int32(b.r), Events: unix.POLLIN} }

// Ring makes it readable. A full pipe is readable already.
func (b Bell) Ring() {
	for {
		if _, err := unix.Write(b.w, []byte{1}); err != unix.EINTR {
			return
		}
	}
}

// Quiet makes it unreadable until it is rung again.
func (b Bell) Quiet() {
	var buf [64]byte
	for {
		if n, err := unix.Read(b.r, buf[:]); n < len(buf) && err != unix.EINTR {
			return
		}
	}
}

// Close closes it.
func (b Bell) Close() error {
	err := unix.Close(b.r)
	if e := unix.Close(b.w); err == nil {
		err = e
	}
	if err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
