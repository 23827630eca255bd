//go:build unix && !aix

package sock

import "golang.org/x/sys/unix"

func sysDup(h uintptr) (uintptr, error) {
	fd, err := unix.FcntlInt(h, unix.F_DUPFD_CLOEXEC, 0)
	return uintptr(fd), err
}
