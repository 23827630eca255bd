package sock

import "golang.org/x/sys/unix"

// sysAccept goes through the scheduler: making a socket takes long enough, and locks of the process's.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		fd, _, e := unix.Syscall6(unix.SYS_ACCEPT4, h, 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch e {
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EPROTO, unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENOPROTOOPT, unix.ENONET:
			// The connection's own pending error (accept(2)).
		default:
			return fd, blockedOr(e)
		}
	}
}

func isTCP(fd int) bool {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && proto == unix.IPPROTO_TCP
}
