//go:build unix

package sockettest

import (
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// New returns a socket that does not block.
func New(domain, typ int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(domain, typ, 0)
	if err != nil {
		return -1, err
	}
	return fd, settled(fd)
}

// UnixPair returns two connected Unix sockets that do not block.
func UnixPair(typ int) (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, typ, 0); err != nil {
		return fds, err
	}
	if err = settled(fds[0]); err == nil {
		err = settled(fds[1])
	}
	return fds, err
}

// Accept returns a connection of a listener that has one. It does not block.
func Accept(listener int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for {
		fd, _, err := unix.Accept(listener)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, err
		}
		return fd, settled(fd)
	}
}

func settled(fd int) error {
	unix.CloseOnExec(fd)
	return unix.SetNonblock(fd, true)
}

// SendUrgent sends a byte of urgent data.
func SendUrgent(fd uintptr, b byte) error { return unix.Send(int(fd), []byte{b}, unix.MSG_OOB) }

// SendEmpty sends an empty datagram.
func SendEmpty(fd uintptr) error { return unix.Send(int(fd), nil, 0) }

var sources atomic.Uint32

// Source returns an address of the loopback device for a TCP socket that is about to connect. On Linux, where all of
// 127.0.0.0/8 are, they are spread, because a connection that was closed uses up a port of its address for a while; the
// other systems have the one.
func Source() [4]byte {
	if runtime.GOOS != "linux" {
		return [4]byte{127, 0, 0, 1}
	}
	n := sources.Add(1)
	return [4]byte{127, 0, byte(1 + n>>8%200), byte(1 + n%250)}
}
