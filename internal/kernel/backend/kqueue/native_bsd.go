//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package kqueue

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// native is the kqueue itself. It is guarded by the mutex of its queue.
type native struct {
	kq  int
	in  [batch*mostSteps + 1]unix.Kevent_t
	out [mostEvents]unix.Kevent_t
}

// now is the timeout of a call that does not block.
var now unix.Timespec

// kevent implements system. If silent is set, it makes the kernel return one step in any case, so that it returns no
// events.
func (s *native) kevent(list, out []kevent, silent bool) (int, error) {
	n := 0
	for _, k := range list {
		toSystem(&s.in[n], k)
		n++
	}
	if silent && receipt != 0 {
		s.in[0].Flags |= receipt
	} else if silent {
		toSystem(&s.in[n], reader(s.kq, evDelete, backend.In)) // fails, because no kqueue watches itself
		n++
	}
	k, err := unix.Kevent(s.kq, s.in[:n], s.out[:len(out)], &now)
	for i := range k {
		out[i] = fromSystem(&s.out[i])
	}
	return k, err
}

func (s *native) pending(fd int) (m backend.Mask, sure bool) { return unixsock.Pending(fd) }

func (s *native) open(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err
}

// The constants of this package equal the system's.
var _ = [1]struct{}{}[(evAdd^unix.EV_ADD)|(evDelete^unix.EV_DELETE)|(evEnable^unix.EV_ENABLE)|
	(evDisable^unix.EV_DISABLE)|(evClear^unix.EV_CLEAR)|(evError^unix.EV_ERROR)|(evEOF^unix.EV_EOF)|
	(noteLowat^unix.NOTE_LOWAT)]

func toSystem(to *unix.Kevent_t, k kevent) {
	mode := unix.EVFILT_READ
	if k.filter == writes {
		mode = unix.EVFILT_WRITE
	}
	*to = unix.Kevent_t{}
	unix.SetKevent(to, k.fd, mode, int(k.flags))
	to.Fflags, to.Data = k.fflags, k.data
}

func fromSystem(k *unix.Kevent_t) kevent {
	f := unknown
	switch k.Filter {
	case unix.EVFILT_READ:
		f = reads
	case unix.EVFILT_WRITE:
		f = writes
	}
	return kevent{fd: int(k.Ident), filter: f, flags: uint32(k.Flags), fflags: k.Fflags, data: k.Data}
}
