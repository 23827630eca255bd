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

	// The packet info of IPv4 is the address.
	recvPacketInfo4 = unix.IP_RECVDSTADDR
	packetInfo4     = unix.IP_RECVDSTADDR // IP_SENDSRCADDR
	sizePacketInfo4 = 4
	source4         = 0
	destination4    = 0
)

func acceptSocket(fd int) (int, error) {
	c, _, err := unix.Accept4(fd, creationFlags)
	return c, err
}
