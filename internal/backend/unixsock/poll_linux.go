package unixsock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// Poll is the entry of a poll(2) for an interest.
func Poll(fd int, interest backend.Mask) unix.PollFd {
	events := int16(interest & (backend.In | backend.Out)) // the same bits
	if interest&backend.PeerClosed != 0 {
		events |= unix.POLLRDHUP
	}
	return unix.PollFd{Fd: int32(fd), Events: events}
}

// Mask translates poll(2)'s results, whose low bits are the seam's.
func Mask(f *unix.PollFd) backend.Mask {
	m := backend.Mask(f.Revents) & (backend.In | backend.Out | backend.Err | backend.Dead)
	if f.Revents&unix.POLLRDHUP != 0 {
		m |= backend.PeerClosed
	}
	return m
}

// Vague are the results of a poll(2) that only Look explains: the end of a stream and the beginning of
// one are easily taken for each other while they happen.
const Vague = backend.Err | backend.Dead

// PollNow is poll(2) that does not block, in parts where the system does not take all entries at once. A long array
// takes too long to keep the scheduler waiting for. It returns how many entries have results, or a negative number
// where the system refused even one.
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
		return inParts(fds)
	}
	return int(r)
}

// Wait is poll(2) that blocks for at most limit. It may end early, with no results.
func Wait(fds []unix.PollFd, limit time.Duration) (int, error) {
	ts := unix.NsecToTimespec(int64(limit))
	n, err := unix.Ppoll(fds, &ts, nil)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
}
