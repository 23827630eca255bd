package sock

import (
	"golang.org/x/sys/unix"
)

const (
	reusePort = unix.SO_REUSEPORT

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT
)

func acceptSocket(fd int) (int, error) {
	c, _, err := unix.Accept4(fd, creationFlags)
	return c, err
}
