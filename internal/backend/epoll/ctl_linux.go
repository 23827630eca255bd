package epoll

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// interest and mask translate between the seam's conditions and epoll's events. The low five bits are
// the same; only PeerClosed has another bit.
func interest(m backend.Mask) uint32 {
	return uint32(m&(backend.In|backend.Urgent|backend.Out)) | uint32(m&backend.PeerClosed)<<8 | unix.EPOLLET
}

func mask(events uint32) backend.Mask {
	return backend.Mask(events&0x1f | events>>8&uint32(backend.PeerClosed))
}

// event returns the argument of epoll_ctl. The token is in the 64 bits that x/sys names Fd and Pad.
func event(events uint32, token uint64) unix.EpollEvent {
	return unix.EpollEvent{Events: events, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
}

func token(e *unix.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
}

// ctl changes one item. MOD and DEL wait only for the mutex of the epoll descriptor, which is held for
// no longer than one change or harvest, so they are raw system calls, unknown to Go's scheduler. ADD allocates,
// and takes a system-wide mutex too if the epoll descriptor is nested in another one (the bridge).
func ctl(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno {
	if op == unix.EPOLL_CTL_ADD {
		_, _, e := unix.Syscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
		return e
	}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
	return e
}

// apply makes one change to an epoll descriptor.
func apply(epfd int, c *backend.Change) {
	if c.SkipIdle {
		return // skipIdle has found that no condition holds
	}
	fd, ok := unixsock.FD(c.Handle)
	if !ok {
		c.Status, c.Err = backend.Bad, unix.EBADF
		return
	}
	op, events := unix.EPOLL_CTL_ADD, interest(c.Interest)
	switch c.Action {
	case backend.Set:
		op = unix.EPOLL_CTL_MOD
	case backend.Suppress:
		op, events = unix.EPOLL_CTL_MOD, interest(0)
	case backend.Delete:
		op = unix.EPOLL_CTL_DEL
	}
	ev := event(events, c.Token)
	if e := ctl(epfd, op, fd, &ev); e != 0 {
		c.Status, c.Err = status(e), e
		return
	}
	c.Status, c.Err = backend.Done, nil
}

func status(e unix.Errno) backend.Status {
	switch e {
	case unix.ENOENT:
		return backend.Absent
	case unix.EEXIST:
		return backend.Present
	case unix.EBADF, unix.EPERM, unix.EINVAL, unix.ELOOP:
		// EPERM: a file that cannot be polled; EINVAL and ELOOP: an epoll descriptor.
		return backend.Bad
	}
	return backend.Refused
}
