package sock

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	reusePort = unix.SO_REUSEPORT

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT

	// No datagram can leave from an address that the program chooses.
	recvPacketInfo4 = 0
	packetInfo4     = 0
	sizePacketInfo4 = 0
	source4         = 0
	destination4    = 0
)

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}

func noSignal(int) error { return nil }
