package sock

import "golang.org/x/sys/unix"

// noSignal covers sendfile, which has no flag for it, and sends on systems that know no MSG_NOSIGNAL.
func noSignal(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
}
