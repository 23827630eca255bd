//go:build unix

package kqueue

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// status is what the first error of a change means. Add fails with ENOENT where the number was closed
// meanwhile. The rest that is Bad is said of what is no socket: EPIPE is a pipe's whose reader is gone.
func status(action backend.Action, e unix.Errno) backend.Status {
	switch e {
	case 0:
		return backend.Done
	case unix.EBADF:
		return backend.Bad
	case unix.ENOENT:
		if action == backend.Add {
			return backend.Bad
		}
		return backend.Absent
	case unix.EINVAL, unix.ENODEV, unix.ENXIO, unix.EOPNOTSUPP, unix.EPERM, unix.EPIPE:
		if action == backend.Add {
			return backend.Bad
		}
	}
	return backend.Refused
}
