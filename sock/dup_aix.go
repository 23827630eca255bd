package sock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func sysDup(h uintptr) (uintptr, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.FcntlInt(h, unix.F_DUPFD, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return uintptr(fd), err
}
