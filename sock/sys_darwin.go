package sock

import (
	"golang.org/x/sys/unix"
)

const (
	// SO_REUSEPORT shares no connections.
	reusePort = 0

	keepIdle     = unix.TCP_KEEPALIVE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT

	// The packet info of IPv4 is the index of the interface, the address to answer from, and the one that a datagram was sent
	// to.
	recvPacketInfo4 = unix.IP_RECVPKTINFO
	packetInfo4     = unix.IP_PKTINFO
	sizePacketInfo4 = 4 + 4 + 4
	source4         = 4
	destination4    = 8
)

// noSignal disables SIGPIPE for the socket. MSG_NOSIGNAL is not enough: sendfile has no flags, and older systems do not
// support MSG_NOSIGNAL.
func noSignal(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
}
