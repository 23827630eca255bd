package load

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An epoll is watched by one thread, around Go's scheduler as long as something is ready, so that the
// generator takes as little of the machine as a C program would.
type epoll struct {
	fd     int
	events [256]unix.EpollEvent
}

func newEpoll() (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &epoll{fd: fd}, nil
}

func (e *epoll) add(fd, index int) error {
	return unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
}

func (e *epoll) close() { unix.Close(e.fd) }

// wait returns what is ready, or nothing after some time.
func (e *epoll) wait() ([]unix.EpollEvent, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events)),
		uintptr(len(e.events)), 0, 0, 0)
	if errno != 0 || n == 0 {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events)),
			uintptr(len(e.events)), 100, 0, 0)
	}
	switch {
	case errno == unix.EINTR:
		return nil, nil
	case errno != 0:
		return nil, errno
	}
	return e.events[:n], nil
}

// recv and send are for non-blocking sockets only.
func recv(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

func send(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
