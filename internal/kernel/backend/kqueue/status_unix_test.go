//go:build unix

package kqueue

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		e        unix.Errno
		add, set backend.Status
	}{
		{0, backend.Done, backend.Done},
		{unix.EBADF, backend.Bad, backend.Bad},
		{unix.ENOENT, backend.Bad, backend.Absent},
		{unix.EPIPE, backend.Bad, backend.Refused},
		{unix.EINVAL, backend.Bad, backend.Refused},
		{unix.ENOMEM, backend.Refused, backend.Refused},
		{unix.EMFILE, backend.Refused, backend.Refused},
	} {
		if got := status(backend.Add, c.e); got != c.add {
			t.Errorf("Add, %v: %d; want %d", c.e, got, c.add)
		}
		for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
			if got := status(action, c.e); got != c.set {
				t.Errorf("action %d, %v: %d; want %d", action, c.e, got, c.set)
			}
		}
	}
}
