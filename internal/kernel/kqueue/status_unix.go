//go:build unix

package kqueue

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// status is what the first error of a change means. Add fails with ENOENT where the number was closed
// meanwhile. The rest that is Bad is said of what is no socket: EPIPE is a pipe's whose reader is gone.
func status(action kernel.Action, e unix.Errno) kernel.Status {
	switch e {
	case 0:
		return kernel.Done
	case unix.EBADF:
		return kernel.Bad
	case unix.ENOENT:
		if action == kernel.Add {
			return kernel.Bad
		}
		return kernel.Absent
	case unix.EINVAL, unix.ENODEV, unix.ENXIO, unix.EOPNOTSUPP, unix.EPERM, unix.EPIPE:
		if action == kernel.Add {
			return kernel.Bad
		}
	}
	return kernel.Refused
}
