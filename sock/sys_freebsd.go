package sock

import (
	"golang.org/x/sys/unix"
)

const (
	// Without _LB it shares no connections.
	reusePort = unix.SO_REUSEPORT_LB

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT
)

func acceptSocket(fd int) (int, error) {
	c, _, err := unix.Accept4(fd, creationFlags)
	return c, err
}
