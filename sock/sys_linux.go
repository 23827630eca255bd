package sock

import "golang.org/x/sys/unix"

// sysAccept uses the scheduler, because creating a socket takes longer and takes locks of the process.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		fd, _, e := unix.Syscall6(unix.SYS_ACCEPT4, h, 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch e {
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EPROTO, unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENOPROTOOPT, unix.ENONET:
			// The pending error of this connection (accept(2)): accept the next one.
		default:
			return fd, blockedOr(e)
		}
	}
}

func isTCP(fd int) bool {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && proto == unix.IPPROTO_TCP
}
