package sockettest

import "golang.org/x/sys/unix"

// BindTo prepares a socket for being bound to a Source: it uses up no port of its own.
func BindTo(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}
