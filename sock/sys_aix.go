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
)

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}

func noSignal(int) error { return nil }
