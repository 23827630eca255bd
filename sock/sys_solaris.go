//go:build !illumos

package sock

import (
	"golang.org/x/sys/unix"
)

const (
	reusePort = 0

	// Since 11.4. The numbers in x/sys are those of illumos.
	keepIdle     = 0x1d
	keepInterval = 0x1e
	keepCount    = 0x1f

	// The packet info of IPv4 is the index of the interface, the address to answer from, and the one that a datagram was sent
	// to.
	recvPacketInfo4 = unix.IP_RECVPKTINFO
	packetInfo4     = unix.IP_PKTINFO
	sizePacketInfo4 = 4 + 4 + 4
	source4         = 4
	destination4    = 8
)

func noSignal(int) error { return nil }
