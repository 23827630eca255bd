//go:build unix

package kqueue

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// status returns the status for the first error of a change. Add fails with ENOENT if the number was closed
// during the call. The other errors with status Bad are about a file that is no socket: EPIPE, for example,
// about a pipe without a reader.
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
