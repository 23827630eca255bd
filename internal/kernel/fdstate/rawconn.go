package fdstate

import (
	"errors"
	"net"
	"syscall"
)

var _ syscall.RawConn = (*FD)(nil)

// ErrWouldBlock is sock.ErrWouldBlock.
var ErrWouldBlock = errors.New("sock: operation would block")

// Control calls f with the handle, which is not closed before f returns. The error is net.ErrClosed for a closed socket.
func (t *FD) Control(f func(handle uintptr)) error {
	handle, ok := t.Use()
	if !ok {
		return net.ErrClosed
	}
	defer t.Done()
	f(handle)
	return nil
}

// Read calls f once, as Control does. By returning false f reports that a receive would have blocked; Read then returns
// ErrWouldBlock instead of waiting.
func (t *FD) Read(f func(handle uintptr) (done bool)) error { return t.once(Recv, f) }

// Write calls f as Read does, for sends.
func (t *FD) Write(f func(handle uintptr) (done bool)) error { return t.once(Send, f) }

func (t *FD) once(d Dir, f func(handle uintptr) (done bool)) error {
	handle, ok := t.Use()
	if !ok {
		return net.ErrClosed
	}
	defer t.Done()
	before := t.Generation()
	if f(handle) {
		return nil
	}
	t.Blocked(d, before)
	return ErrWouldBlock
}

// Of returns the FD behind the result of a SyscallConn method, or nil: that of a sock.Socket, or of what embeds one.
func Of(c syscall.RawConn, _ error) *FD {
	fd, _ := c.(*FD)
	return fd
}
