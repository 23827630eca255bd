//go:build unix

package nowait

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const supported = true

// A call is a call of a Socket that is under way. It comes from a pool, so that its functions are allocated once.
type call struct {
	b           []byte
	n           int
	err         error
	read, write func(fd uintptr) bool
	writable    func(fd uintptr)
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.read = func(fd uintptr) bool { return c.try("read", read, fd) }
	c.write = func(fd uintptr) bool { return c.try("write", write, fd) }
	c.writable = func(fd uintptr) {
		set := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		c.n, _ = unix.Poll(set[:], 0) // an error is like nothing: the next notification tells
	}
	return c
}}

// try makes one system call, and does not wait.
func (c *call) try(name string, f func(int, []byte) (int, error), fd uintptr) bool {
	var err error
	for {
		if c.n, err = f(int(fd), c.b); err != unix.EINTR {
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

// Read reads what there is. It returns 0 and no error if there is nothing.
func (s Socket) Read(b []byte) (int, error) {
	c := calls.Get().(*call)
	c.b = b
	return c.end(s.conn.Read(c.read))
}

// Write writes what the system takes, which may be nothing.
func (s Socket) Write(b []byte) (int, error) {
	c := calls.Get().(*call)
	c.b = b
	return c.end(s.conn.Write(c.write))
}

// Writable reports whether the system takes more bytes.
func (s Socket) Writable() bool {
	c := calls.Get().(*call)
	n, err := c.end(s.conn.Control(c.writable))
	return n > 0 || err != nil
}

// end returns the result of a call. err is that of the RawConn.
func (c *call) end(err error) (int, error) {
	n := c.n
	if err == nil {
		err = c.err
	}
	c.b, c.n, c.err = nil, 0, nil
	calls.Put(c)
	return n, err
}
