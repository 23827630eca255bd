//go:build unix || windows

package sock

import (
	"errors"
	"syscall"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

func (n Network) sys() (domain, typ int) {
	domain, typ = syscall.AF_INET, syscall.SOCK_STREAM
	switch n {
	case TCP6, UDP6:
		domain = syscall.AF_INET6
	case Unix, UnixDatagram:
		domain = syscall.AF_UNIX
	}
	if !n.stream() {
		typ = syscall.SOCK_DGRAM
	}
	return domain, typ
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

func setFlag(h uintptr, level, option int, on bool) error {
	return setOption(h, level, option, flag(on))
}

func sysNoDelay(h uintptr, on bool) error {
	return setFlag(h, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, on)
}

func sysDualStack(h uintptr, on bool) error {
	return setFlag(h, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, !on)
}

func setKeepAlive(h uintptr, on bool) error {
	return setFlag(h, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, on)
}

func sysHasNoDelay(h uintptr) (bool, error) { return has(h, syscall.IPPROTO_TCP, syscall.TCP_NODELAY) }
func hasKeepAlive(h uintptr) (bool, error)  { return has(h, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) }

func has(h uintptr, level, option int) (bool, error) {
	v, err := getOption(h, level, option)
	return v != 0, err
}

func getTCP(h uintptr, option int) (int, error) {
	v, err := getOption(h, syscall.IPPROTO_TCP, option)
	if err == errNoOption {
		return 0, errors.ErrUnsupported
	}
	return v, err
}

func setTCP(h uintptr, option, value int) error {
	err := setOption(h, syscall.IPPROTO_TCP, option, value)
	if err == errNoOption {
		return errors.ErrUnsupported
	}
	return err
}

func sysErr(h uintptr) error {
	v, err := getOption(h, syscall.SOL_SOCKET, soError)
	if err != nil {
		return err
	}
	if v != 0 {
		return syscall.Errno(v)
	}
	return nil
}

func sysBuffer(h uintptr, d fdstate.Dir, n int) error {
	option := syscall.SO_RCVBUF
	if d == fdstate.Send {
		option = syscall.SO_SNDBUF
	}
	return setOption(h, syscall.SOL_SOCKET, option, n)
}
