package conformance

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

func init() {
	ownNoSockets = map[string]func() (int, error){
		"eventfd": func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) },
		"epoll":   func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) },
	}
}

// vsock makes an unconnected vsock stream.
func (e *env) vsock() *socket {
	f, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		e.Skip("this kernel has no vsock: ", err)
	}
	return e.keep(sock.Adopt(uintptr(f), sock.RefuseBlocking))
}

// mptcp makes an unconnected MPTCP socket.
func (e *env) mptcp() *socket {
	const nonblocking = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	f, err := unix.Socket(unix.AF_INET, nonblocking, unix.IPPROTO_MPTCP)
	switch err {
	case unix.EINVAL, unix.EPROTONOSUPPORT, unix.ENOPROTOOPT:
		e.Skip("this kernel has no MPTCP: ", err)
	case nil:
	default:
		e.Fatalf("socket: %v", err)
	}
	return e.keep(sock.Adopt(uintptr(f), sock.RefuseBlocking))
}
