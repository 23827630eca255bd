package unixsock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Poll returns the entry of a poll(2) for an interest.
func Poll(fd int, interest backend.Mask) unix.PollFd {
	events := int16(interest & (backend.In | backend.Out)) // the same bits
	if interest&backend.PeerClosed != 0 {
		events |= unix.POLLRDHUP
	}
	return unix.PollFd{Fd: int32(fd), Events: events}
}

// Mask translates the results of poll(2). Their low bits are those of backend.Mask.
func Mask(f *unix.PollFd) backend.Mask {
	m := backend.Mask(f.Revents) & (backend.In | backend.Out | backend.Err | backend.Dead)
	if f.Revents&unix.POLLRDHUP != 0 {
		m |= backend.PeerClosed
	}
	return m
}

// Ambiguous are the results of a poll(2) that only PollOne can resolve: while a stream starts or
// ends, one can be mistaken for the other.
const Ambiguous = backend.Err | backend.Dead

// PollNow calls poll(2) without blocking, in parts if the system does not take all entries at once.
// It returns the number of entries with results, or a negative number if the system refused even
// one entry. A short array is a raw system call; a long one takes too long to keep Go's scheduler
// waiting.
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
		return PollNow(fds) // a caller that is about to park relies on this poll
	}
	if e != 0 {
		return inParts(fds)
	}
	return int(r)
}

// Wait calls poll(2) and blocks for at most limit. It may return early, without results.
func Wait(fds []unix.PollFd, limit time.Duration) (int, error) {
	ts := unix.NsecToTimespec(int64(limit))
	n, err := unix.Ppoll(fds, &ts, nil)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}

// PollOne polls one socket and returns the conditions that hold. A reset sets the error of a TCP
// socket first and its state a moment later, both under the socket's lock. PollOne therefore takes
// that lock before it polls, by reading TCP_INFO.
func PollOne(handle uintptr) backend.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	_, _ = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	one := [1]unix.PollFd{Poll(fd, backend.In|backend.Out|backend.PeerClosed)}
	if PollNow(one[:]) <= 0 || one[0].Revents&unix.POLLNVAL != 0 {
		return 0
	}
	return Mask(&one[0])
}
