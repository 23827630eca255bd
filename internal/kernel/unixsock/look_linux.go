package unixsock

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// Mask translates poll(2)'s results, whose low bits are the seam's.
func Mask(revents int16) kernel.Mask {
	m := kernel.Mask(revents) & (kernel.In | kernel.Out | kernel.Err | kernel.Dead)
	if revents&unix.POLLRDHUP != 0 {
		m |= kernel.PeerClosed
	}
	return m
}

// Look polls one socket. A reset sets the error of a TCP socket first and its state a moment later,
// both under the socket's lock, so the lock is taken first: TCP_INFO does.
func Look(handle uintptr) kernel.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	_, _ = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	one := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP}}
	if PollNow(one[:]) <= 0 || one[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	return Mask(one[0].Revents)
}

// PollNow is poll(2) that does not block. A long array takes too long to keep the scheduler waiting
// for. It returns how many entries have results; a failure has none.
func PollNow(fds []unix.PollFd) int {
	var now unix.Timespec
	var r uintptr
	var e unix.Errno
	if len(fds) <= 1024 {
		r, _, e = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	} else {
		r, _, e = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	}
	if e == unix.EINTR {
		return PollNow(fds) // a caller that is about to park relies on this look
	}
	if e != 0 {
		return 0
	}
	return int(r)
}
