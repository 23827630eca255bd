package sock

import "golang.org/x/sys/unix"

const (
	reusePort = 0

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT
)
