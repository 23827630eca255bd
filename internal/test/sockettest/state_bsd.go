//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package sockettest

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

const more = 0

// HidesEnd reports whether unread data hides the end of a stream.
const HidesEnd = false

// beside returns what poll(2) does not say: the ends of the directions, from two knotes in a kqueue of its own, and an
// error. (macOS sets POLLHUP for one direction, and NetBSD for none.)
//
// The reading knote waits for more data than there is. So it is reported only for the end of the stream or for an error,
// both of which unread data hides from a receive. macOS bounds what it waits for by the size of the buffer, so that a
// full buffer is a third reason.
func beside(fd int, _ uint16) (s State) {
	kq, err := unix.Kqueue()
	if err != nil {
		panic(fmt.Sprint("kqueue: ", err))
	}
	defer unix.Close(kq)
	var in [2]unix.Kevent_t
	unix.SetKevent(&in[0], fd, unix.EVFILT_READ, unix.EV_ADD)
	in[0].Fflags, in[0].Data = unix.NOTE_LOWAT, math.MaxInt32
	unix.SetKevent(&in[1], fd, unix.EVFILT_WRITE, unix.EV_ADD)
	n, out := 0, make([]unix.Kevent_t, 4)
	for {
		var now unix.Timespec
		if n, err = unix.Kevent(kq, in[:], out, &now); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0 // it was closed
	}
	ends := 0
	for _, k := range out[:n] {
		switch {
		case k.Flags&unix.EV_ERROR != 0:
		case k.Flags&unix.EV_EOF != 0:
			ends++
			if k.Filter == unix.EVFILT_READ {
				s |= PeerClosed
			}
			if k.Fflags != 0 {
				s |= Err | Dead | PeerClosed
			}
		case k.Filter == unix.EVFILT_READ:
			room, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			n, why := peek(fd)
			if failed(why) || n > 0 && err == nil && int(k.Data) < room {
				s |= Err
			}
		}
	}
	if ends == 2 {
		s |= Dead
	}
	return s
}
