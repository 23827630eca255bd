package sock

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// SO_REUSEPORT shares no connections.
	reusePort = 0

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

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}

// acceptSocket uses syscall.Accept4, because x/sys has none for this system.
func acceptSocket(fd int) (int, error) {
	c, _, err := syscall.Accept4(fd, creationFlags)
	return c, err
}
