//go:build unix

package gateway

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A raw is the socket of a connection, for calls that do not wait. It is as that of package websocket.
type raw struct{ conn syscall.RawConn }

func newRaw(conn net.Conn) (r raw) {
	if c, ok := conn.(syscall.Conn); ok {
		r.conn, _ = c.SyscallConn()
	}
	return r
}

func (r raw) ok() bool { return r.conn != nil }

// A rawCall is a call under way. It comes from a pool, so that its functions are allocated once.
type rawCall struct {
	b           []byte
	n           int
	err         error
	read, write func(fd uintptr) bool
	writable    func(fd uintptr)
}

var rawCalls = sync.Pool{New: func() any {
	c := new(rawCall)
	c.read = func(fd uintptr) bool { return c.try(unix.Read, fd, io.EOF) }
	c.write = func(fd uintptr) bool { return c.try(unix.Write, fd, nil) }
	c.writable = func(fd uintptr) {
		set := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		c.n, _ = unix.Poll(set[:], 0) // an error is like nothing; the next turn tries again
	}
	return c
}}

// try makes one system call. atZero is the error that 0 bytes stand for.
func (c *rawCall) try(call func(int, []byte) (int, error), fd uintptr, atZero error) bool {
	for {
		if c.n, c.err = call(int(fd), c.b); !errors.Is(c.err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(c.err, unix.EAGAIN):
		c.n, c.err = 0, nil
	case c.err != nil:
		c.n = 0
	case c.n == 0:
		c.err = atZero
	}
	return true
}

// read reads what there is, which may be nothing.
func (r raw) read(b []byte) (int, error) {
	c := rawCalls.Get().(*rawCall)
	c.b = b
	return c.end(r.conn.Read(c.read))
}

// write writes what the system takes, which may be nothing.
func (r raw) write(b []byte) (int, error) {
	c := rawCalls.Get().(*rawCall)
	c.b = b
	return c.end(r.conn.Write(c.write))
}

// writable reports whether the system takes more bytes.
func (r raw) writable() bool {
	c := rawCalls.Get().(*rawCall)
	n, err := c.end(r.conn.Control(c.writable))
	return n > 0 || err != nil
}

func (c *rawCall) end(err error) (int, error) {
	n := c.n
	if err == nil {
		err = c.err
	}
	c.b, c.n, c.err = nil, 0, nil
	rawCalls.Put(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}
