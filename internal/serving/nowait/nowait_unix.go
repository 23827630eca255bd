//go:build unix

package nowait

import (
	"errors"
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
	waits       bool
	read, write func(fd uintptr) bool
	events      int16 // that poll asks for
	poll        func(fd uintptr)
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.read = func(fd uintptr) bool { return c.try("read", read, fd) }
	c.write = func(fd uintptr) bool { return c.try("write", write, fd) }
	c.poll = func(fd uintptr) { c.n = int(pollOnce(int(fd), c.events)) }
	return c
}}

// try makes one system call, or several that write. It returns false to be called again when the
// socket is ready.
func (c *call) try(name string, f func(int, []byte) (int, error), fd uintptr) bool {
	for {
		n, err := f(int(fd), c.b[c.n:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return !c.waits
		case err != nil:
			c.err = os.NewSyscallError(name, err)
			return true
		case n == 0 && name == "read":
			c.err = io.EOF
			return true
		}
		if c.n += n; !c.waits || name == "read" || c.n == len(c.b) {
			return true
		}
	}
}

// Read reads what there is. It returns 0 and no error if there is nothing.
func (s Socket) Read(b []byte) (int, error) { return s.receive(b, false) }

// Read returns 0 and no error when the deadline has passed.
func (s Reader) Read(b []byte) (int, error) { return s.receive(b, true) }

func (s Socket) receive(b []byte, wait bool) (int, error) {
	c := calls.Get().(*call)
	c.b, c.waits = b, wait
	return c.end(s.conn.Read(c.read))
}

// Write writes what the system takes, which may be nothing.
func (s Socket) Write(b []byte) (int, error) { return s.send(b, false) }

// Write returns how much was taken when the deadline has passed, and no error.
func (s Writer) Write(b []byte) (int, error) { return s.send(b, true) }

func (s Socket) send(b []byte, wait bool) (int, error) {
	c := calls.Get().(*call)
	c.b, c.waits = b, wait
	return c.end(s.conn.Write(c.write))
}

// Writable reports whether the system takes more bytes.
func (s Socket) Writable() bool {
	revents, err := s.poll(unix.POLLOUT)
	return revents != 0 || err != nil
}

// Readable reports whether there is something to read, or the end.
func (s Socket) Readable() bool {
	revents, err := s.poll(unix.POLLIN)
	return revents != 0 || err != nil
}

// HungUp reports whether both directions of the connection have ended, and the kernel has no error
// for the next operation.
func (s Socket) HungUp() bool {
	revents, _ := s.poll(0)
	return revents&(unix.POLLHUP|unix.POLLERR) == unix.POLLHUP
}

func (s Socket) poll(events int16) (revents int, err error) {
	c := calls.Get().(*call)
	c.events = events
	return c.end(s.conn.Control(c.poll))
}

// pollOnce returns what holds of the events, a hang-up and an error. An error of poll(2) is like
// nothing: the next notification reports it.
func pollOnce(fd int, events int16) int16 {
	set := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(set[:], 0); err != unix.EINTR {
			return set[0].Revents
		}
	}
}

// end returns the result of a call. err is that of the RawConn.
func (c *call) end(err error) (int, error) {
	n := c.n
	if err == nil {
		err = c.err
	} else if c.waits && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	c.b, c.n, c.err, c.waits = nil, 0, nil, false
	calls.Put(c)
	return n, err
}
