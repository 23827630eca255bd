package fakepsn

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// cookie returns a number that no other socket has or had. ok is false if fd is no open socket.
func cookie(fd int) (c uint64, ok bool) {
	c, e := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	return c, e == nil
}

// Supported returns an error if this system does not number its sockets. Every Linux that Go supports does; qemu's
// emulation of one does not.
func Supported() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		return fmt.Errorf("getsockopt(SO_COOKIE): %w", err)
	}
	return nil
}

// conditions returns the native conditions that hold for the registration's socket.
func (r *registration) conditions(q *Quirks) uint32 {
	fd := r.fd
	kind, e := unixsock.Describe(uintptr(fd))
	if e != nil {
		return 0
	}
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP}}
	unixsock.PollNow(p[:])
	unread := 0
	if kind == backend.Stream && p[0].Revents&unix.POLLRDHUP != 0 {
		unread, _ = unix.IoctlGetInt(fd, unix.TIOCINQ)
	}
	if p[0].Revents&(unix.POLLOUT|unix.POLLHUP|unix.POLLERR) == unix.POLLOUT {
		r.connected = true
	}
	return q.native(p[0].Revents, kind, unread > 0, r.connected)
}

// native translates the results of poll(2). A socket without a connection has no HANGUP, and a stream that was
// never started has no condition. A failed connect is ERR without OUT.
func (q *Quirks) native(revents int16, kind backend.Kind, unread, connected bool) uint32 {
	const dead = unix.POLLHUP | unix.POLLRDHUP
	var c uint32
	if revents&unix.POLLIN != 0 {
		c |= in
	}
	if revents&unix.POLLOUT != 0 && kind != backend.Listener {
		c |= out
	}
	if revents&unix.POLLERR != 0 {
		c |= err
	}
	if kind != backend.Stream {
		return c
	}
	switch {
	case revents&(dead|unix.POLLERR) == unix.POLLHUP:
		return 0
	case revents&unix.POLLRDHUP == 0:
		return c
	case revents&(dead|unix.POLLERR) == dead|unix.POLLERR:
		c &^= in | out
		if q.ResetIsErr || !connected {
			return c
		}
		return c | hangup
	}
	if !unread && !q.EndIsIn {
		c &^= in
	}
	return c | hangup
}
