package sock

import (
	"golang.org/x/sys/unix"
)

const (
	reusePort = 0

	keepIdle     = unix.TCP_KEEPIDLE
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

func acceptSocket(fd int) (int, error) {
	c, _, err := unix.Accept4(fd, creationFlags)
	return c, err
}
