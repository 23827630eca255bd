package sock

import "golang.org/x/sys/unix"

// noSignal disables SIGPIPE for the socket. MSG_NOSIGNAL is not enough: sendfile has no flags, and older systems do not
// support MSG_NOSIGNAL.
func noSignal(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
}
