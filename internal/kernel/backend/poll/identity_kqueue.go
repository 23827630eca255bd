//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package poll

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// identities distinguish sockets by a kqueue with a disabled knote for each: the kernel removes a socket's knote
// when its number is closed. fstat(2) is of no use on these systems, because it returns the inode number 0 for
// every TCP and UDP socket.
type identities struct{ kq int }

// An identity is empty: the socket is the same if its EVFILT_WRITE knote exists. For EVFILT_READ see behind.
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

// of adds a knote for the socket that a number names now. It returns an error if the number is closed.
func (ids *identities) of(fd int) (identity, error) {
	return identity{}, ids.change(fd, unix.EVFILT_WRITE, unix.EV_ADD|unix.EV_DISABLE)
}

// same reports whether a number still names the socket that it named when of was called for it.
func (ids *identities) same(fd int, _ identity) (bool, error) {
	err := ids.change(fd, unix.EVFILT_WRITE, unix.EV_DISABLE)
	if err == unix.ENOENT {
		// macOS returns ENOENT for a closed number too.
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

// behind returns the conditions that unread data hides from poll(2) and from a peek: the end of the stream, and
// an error. To find them it adds a reading knote that waits for more data than a buffer holds, and therefore
// reports nothing else.
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
