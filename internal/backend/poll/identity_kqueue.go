//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package poll

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// identities tell sockets apart by a kqueue that watches each for nothing: a socket's knote vanishes when its
// number is closed. (These systems' fstat(2) has the inode number 0 for every TCP and UDP socket.)
type identities struct{ kq int }

// An identity is whether there is a knote, which writes; for the other see behind.
type identity struct{}

func (ids *identities) open() error {
	syscall.ForkLock.RLock()
	kq, err := unix.Kqueue()
	if err == nil {
		unix.CloseOnExec(kq)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return os.NewSyscallError("kqueue", err)
	}
	ids.kq = kq
	return nil
}

func (ids *identities) close() error {
	if err := unix.Close(ids.kq); err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}

// of makes the kqueue watch what a number names now; the error is that of a closed one.
func (ids *identities) of(fd int) (identity, error) {
	return identity{}, ids.change(fd, unix.EVFILT_WRITE, unix.EV_ADD|unix.EV_DISABLE)
}

// same reports whether a number names what it did when of was called for it.
func (ids *identities) same(fd int, _ identity) (bool, error) {
	err := ids.change(fd, unix.EVFILT_WRITE, unix.EV_DISABLE)
	if err == unix.ENOENT {
		// macOS says that also of a closed number.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return false, err
	}
	return err == nil, err
}

func (ids *identities) drop(fd int) { ids.change(fd, unix.EVFILT_WRITE, unix.EV_DELETE) }

func (ids *identities) change(fd, filter, flags int) error {
	var one [1]unix.Kevent_t
	unix.SetKevent(&one[0], fd, filter, flags)
	for {
		if _, err := unix.Kevent(ids.kq, one[:], nil, nil); err != unix.EINTR {
			return err
		}
	}
}

var now unix.Timespec

// behind tells what unread data hides from poll(2) and from a peek: the end of the stream, and an error. A
// reading knote that waits for more data than there ever is reports nothing else.
func (ids *identities) behind(fd int) backend.Mask {
	var in, out [1]unix.Kevent_t
	unix.SetKevent(&in[0], fd, unix.EVFILT_READ, unix.EV_ADD|unix.EV_ONESHOT)
	in[0].Fflags, in[0].Data = unix.NOTE_LOWAT, math.MaxInt32
	n, err := unix.Kevent(ids.kq, in[:], out[:], &now)
	switch {
	case err != nil || n == 0:
		ids.change(fd, unix.EVFILT_READ, unix.EV_DELETE)
		return 0
	case out[0].Flags&unix.EV_ERROR != 0 || out[0].Flags&unix.EV_EOF == 0:
		return 0
	case out[0].Fflags != 0:
		return backend.Err | backend.Dead | backend.PeerClosed
	}
	return backend.PeerClosed
}
