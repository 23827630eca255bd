//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package conformance

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	ownNoSockets = map[string]func() (int, error){"kqueue": func() (int, error) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		kq, err := unix.Kqueue()
		if err == nil {
			unix.CloseOnExec(kq)
		}
		return kq, err
	}}
}
