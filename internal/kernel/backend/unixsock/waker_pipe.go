//go:build unix && !linux

package unixsock

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Waker makes a blocked poll(2) return. On these systems it is a pipe: two descriptors.
type Waker struct{ r, w int }

// NewWaker opens a Waker.
func NewWaker() (Waker, error) {
	var p [2]int
	// Not every system can create a pipe with the flags set, so no child process may be created in between.
	syscall.ForkLock.RLock()
	err := unix.Pipe(p[:])
	if err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return Waker{}, os.NewSyscallError("pipe", err)
	}
	w := Waker{p[0], p[1]}
	for _, fd := range p {
		if err := unix.SetNonblock(fd, true); err != nil {
			w.Close()
			return Waker{}, os.NewSyscallError("fcntl", err)
		}
	}
	return w, nil
}

// Entry returns the entry that a poll(2) needs to be woken.
func (w Waker) Entry() unix.PollFd { return unix.PollFd{Fd: int32(w.r), Events: unix.POLLIN} }

// Wake makes w readable. A full pipe is readable already.
func (w Waker) Wake() {
	for {
		if _, err := unix.Write(w.w, []byte{1}); err != unix.EINTR {
			return
		}
	}
}

// Reset makes w unreadable until the next Wake.
func (w Waker) Reset() {
	var buf [64]byte
	for {
		if n, err := unix.Read(w.r, buf[:]); n < len(buf) && err != unix.EINTR {
			return
		}
	}
}

// Close closes the descriptors of w.
func (w Waker) Close() error {
	err := unix.Close(w.r)
	if e := unix.Close(w.w); err == nil {
		err = e
	}
	if err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
