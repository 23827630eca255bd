//go:build unix

package kqueue

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		e        unix.Errno
		add, set kernel.Status
	}{
		{0, kernel.Done, kernel.Done},
		{unix.EBADF, kernel.Bad, kernel.Bad},
		{unix.ENOENT, kernel.Bad, kernel.Absent},
		{unix.EPIPE, kernel.Bad, kernel.Refused},
		{unix.EINVAL, kernel.Bad, kernel.Refused},
		{unix.ENOMEM, kernel.Refused, kernel.Refused},
		{unix.EMFILE, kernel.Refused, kernel.Refused},
	} {
		if got := status(kernel.Add, c.e); got != c.add {
			t.Errorf("Add, %v: %d; want %d", c.e, got, c.add)
		}
		for _, action := range []kernel.Action{kernel.Set, kernel.Mute, kernel.Delete} {
			if got := status(action, c.e); got != c.set {
				t.Errorf("action %d, %v: %d; want %d", action, c.e, got, c.set)
			}
		}
	}
}
