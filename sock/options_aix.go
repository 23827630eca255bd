package sock

import "golang.org/x/sys/unix"

const (
	reusePort = unix.SO_REUSEPORT

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT
)
