package sock

import "golang.org/x/sys/unix"

const (
	// SO_REUSEPORT shares no connections.
	reusePort = 0

	keepIdle     = unix.TCP_KEEPALIVE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT
)
