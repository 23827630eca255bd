package sock

const (
	// SO_REUSEPORT shares no connections.
	reusePort = 0

	// The system has these for all sockets together.
	keepIdle     = 0
	keepInterval = 0
	keepCount    = 0
)
