package sockettest

import "golang.org/x/sys/unix"

// BindTo prepares a socket for being bound to a Source: it uses up no port of its own. qemu-user 7.2 does not know the option;
// there a socket uses up a port of its Source, and the Sources are many.
func BindTo(fd uintptr) error {
	err := unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err == unix.ENOPROTOOPT {
		return nil
	}
	return err
}
