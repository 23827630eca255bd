//go:build unix

package websocket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A raw is the socket of a connection, for calls that do not wait. The zero value is for connections without one.
type raw struct{ conn syscall.RawConn }

// newRaw returns the socket of conn, which is the innermost connection.
func newRaw(conn net.Conn) (r raw) {
	switch c := conn.(type) {
	case *net.TCPConn:
		r.conn, _ = c.SyscallConn()
	case *net.UnixConn:
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
	c.read = func(fd uintptr) bool { return c.try("read", unix.Read, fd) }
	c.write = func(fd uintptr) bool { return c.try("write", unix.Write, fd) }
	c.writable = func(fd uintptr) {
		set := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		c.n, _ = unix.Poll(set[:], 0) // an error is like nothing: the next notification tells
	}
	return c
}}

// try makes one system call, and does not wait.
func (c *rawCall) try(name string, call func(int, []byte) (int, error), fd uintptr) bool {
	var err error
	for {
		if c.n, err = call(int(fd), c.b); err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.EAGAIN:
		c.n = 0
	case err != nil:
		c.n, c.err = 0, os.NewSyscallError(name, err)
	case c.n == 0 && name == "read":
		c.err = io.EOF
	}
	return true
}

// read reads what there is. It returns 0 and no error if there is nothing.
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

// end returns the result of a call. err is that of the RawConn.
func (c *rawCall) end(err error) (int, error) {
	n := c.n
	if err == nil {
		err = c.err
	}
	c.b, c.n, c.err = nil, 0, nil
	rawCalls.Put(c)
	return n, err
}
