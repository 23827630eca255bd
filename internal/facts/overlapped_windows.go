package facts

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// overlapped are the facts about Windows' own overlapped calls. See docs/decisions/windows.md.
var overlapped = []fact{
	{"WSARecv outstanding, data arrives", func(c *scope) string {
		s, peer := c.tcp()
		p := c.completions(s)
		p.recv(s)
		c.send(peer, "x")
		return p.next(limit)
	}},
	{"WSARecv outstanding, CancelIoEx", func(c *scope) string {
		s, _ := c.tcp()
		p := c.completions(s)
		p.recv(s)
		c.check("CancelIoEx", windows.CancelIoEx(windows.Handle(s.Handle()), nil))
		return p.next(limit)
	}},
	{"WSARecv outstanding, peer resets", func(c *scope) string {
		s, peer := c.tcp()
		p := c.completions(s)
		p.recv(s)
		c.reset(peer)
		return p.next(limit)
	}},
	{"WSARecv outstanding, closed", func(c *scope) string {
		s, _ := c.tcp()
		p := c.completions(s)
		p.recv(s)
		c.check("close", s.Close())
		return p.next(limit)
	}},
	{"WSARecv outstanding, closed, a duplicate open; data arrives", func(c *scope) string {
		s, peer := c.tcp()
		p := c.completions(s)
		p.recv(s)
		d, err := duplicate(s.Handle())
		c.check("duplicate", err)
		c.opened = append(c.opened, d)
		c.check("close", s.Close())
		closed := p.next(patient)
		c.send(peer, "x")
		return closed + "; " + p.next(patient)
	}},
	{"WSARecv outstanding, recv", func(c *scope) string {
		s, peer := c.tcp()
		p := c.completions(s)
		p.recv(s)
		_, err := s.Recv(make([]byte, 1))
		c.send(peer, "x")
		return fmt.Sprintf("recv: %v; %s", err, p.next(limit))
	}},
	{"WSASend outstanding, CancelIoEx", func(c *scope) string {
		s, peer := c.tcp()
		p := c.completions(s)
		o := p.send(s, 32<<20)
		first := p.next(patient)
		if first != nothing {
			return "taken at once: " + first
		}
		c.check("CancelIoEx", windows.CancelIoEx(windows.Handle(s.Handle()), nil))
		text := p.next(limit)
		c.check("close", s.Close())
		got := c.received(peer)
		return fmt.Sprintf("%s; the peer received %s", text, compare(got, int(o.InternalHigh)))
	}},
	{"ConnectEx outstanding, CancelIoEx", func(c *scope) string {
		l := c.keep(sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 1}))
		for range 8 { // more than there is room for
			c.connect(c.fresh(sock.TCP4), l)
		}
		s := c.fresh(sock.TCP4)
		c.check("bind", s.Bind(sock.Loopback))
		p := c.completions(s)
		p.connect(s, l)
		if first := p.next(patient); first != nothing {
			return "at once: " + first
		}
		c.check("CancelIoEx", windows.CancelIoEx(windows.Handle(s.Handle()), nil))
		text := p.next(limit)
		connected := false
		for end := time.Now().Add(limit); !connected && time.Now().Before(end); time.Sleep(time.Millisecond) {
			a, err := l.Accept()
			if err != nil {
				continue
			}
			connected = a.RemoteAddr() == s.LocalAddr()
			a.Close()
		}
		if connected {
			return text + "; connects"
		}
		return text + "; does not connect"
	}},
	{"on a completion port, taken off it", func(c *scope) string {
		s, _ := c.tcp()
		c.completions(s)
		var status windows.IO_STATUS_BLOCK
		var none struct{ port, key uintptr }
		return outcome(windows.NtSetInformationFile(windows.Handle(s.Handle()), &status, (*byte)(unsafe.Pointer(&none)),
			uint32(unsafe.Sizeof(none)), windows.FileReplaceCompletionInformation))
	}},
	{"on a completion port, given to another", func(c *scope) string {
		s, _ := c.tcp()
		c.completions(s)
		p, err := windows.CreateIoCompletionPort(windows.Handle(s.Handle()), 0, 0, 0)
		if err == nil {
			windows.CloseHandle(p)
		}
		return outcome(err)
	}},
	{"WSARecv outstanding, registered on the same port; data arrives", func(c *scope) string {
		a, err := openNative()
		c.check("ProcessSocketNotifications", err)
		defer a.close()
		s, peer := c.tcp()
		p := &completions{c, a.(*native).port}
		_, err = windows.CreateIoCompletionPort(windows.Handle(s.Handle()), p.port, 7, 0)
		c.check("CreateIoCompletionPort", err)
		failed := a.do(sn.OpEnable, s.Handle(), 1, allEvents, level|oneShot)
		p.recv(s)
		c.send(peer, "x")
		return list(failed, p.next(limit), p.next(patient))
	}},
}

// completions is a completion port that a socket is associated with.
type completions struct {
	c    *scope
	port windows.Handle
}

type completionPort windows.Handle

func (p completionPort) Close() error { return windows.CloseHandle(windows.Handle(p)) }

// An operation is owned by the kernel until its completion is dequeued.
type operation struct {
	windows.Overlapped
	vec   windows.WSABuf
	flags uint32
	buf   []byte
}

// started keeps operations and their buffers reachable. They are few.
var started struct {
	sync.Mutex
	list []*operation
}

func (c *scope) completions(s *sock.Socket) *completions {
	port, err := windows.CreateIoCompletionPort(windows.Handle(s.Handle()), 0, 7, 0)
	c.check("CreateIoCompletionPort", err)
	c.opened = append(c.opened, completionPort(port))
	return &completions{c, port}
}

func newOperation(n int) *operation {
	o := &operation{buf: make([]byte, n)}
	o.vec = windows.WSABuf{Len: uint32(n), Buf: &o.buf[0]}
	started.Lock()
	defer started.Unlock()
	started.list = append(started.list, o)
	return o
}

// pending accepts the outcomes of a call that is carried out in the background.
func (p *completions) pending(what string, err error) {
	if !errors.Is(err, windows.ERROR_IO_PENDING) {
		p.c.check(what, err)
	}
}

func (p *completions) recv(s *sock.Socket) {
	o := newOperation(1)
	p.pending("WSARecv", windows.WSARecv(windows.Handle(s.Handle()), &o.vec, 1, nil, &o.flags, &o.Overlapped, nil))
}

func (p *completions) send(s *sock.Socket, n int) *operation {
	o := newOperation(n)
	p.pending("WSASend", windows.WSASend(windows.Handle(s.Handle()), &o.vec, 1, nil, 0, &o.Overlapped, nil))
	return o
}

func (p *completions) connect(s, to *sock.Socket) {
	o := newOperation(1)
	at := to.LocalAddr()
	p.pending("ConnectEx", windows.ConnectEx(windows.Handle(s.Handle()),
		&windows.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, nil, 0, nil, &o.Overlapped))
}

// next describes the next completion, or notification of ProcessSocketNotifications.
func (p *completions) next(d time.Duration) string {
	var n uint32
	var key uintptr
	var o *windows.Overlapped
	err := windows.GetQueuedCompletionStatus(p.port, &n, &key, &o, uint32(d.Milliseconds()))
	switch {
	case o == nil && errors.Is(err, windows.WAIT_TIMEOUT):
		return nothing
	case err != nil:
		return outcome(err)
	case key != 7:
		return "notified: " + names(sn.Events(n))
	}
	return fmt.Sprintf("done, %d bytes", n)
}

// outcome describes an error by its number, because texts are in the user's language.
func outcome(err error) string {
	var e windows.Errno
	var status windows.NTStatus
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &e):
		return fmt.Sprintf("error %d", uint32(e))
	case errors.As(err, &status):
		return fmt.Sprintf("status %#x", uint32(status))
	}
	return err.Error()
}

// received returns the number of bytes up to the end of a stream.
func (c *scope) received(s *sock.Socket) (n int) {
	b := make([]byte, 64<<10)
	c.wait("the end", func() bool {
		for {
			k, err := s.Recv(b)
			if n += k; err != nil {
				return err != sock.ErrWouldBlock
			}
		}
	})
	return n
}

// compare describes the bytes that arrived beside those that a canceled send has reported.
func compare(arrived, reported int) string {
	switch {
	case arrived == reported:
		return "as many as were reported"
	case reported == 0:
		return "some, and none were reported"
	}
	return "another number than was reported"
}
