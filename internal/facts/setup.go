package facts

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/sock"
)

const (
	soon    = 60 * time.Millisecond  // no report for this long on loopback means that none comes
	patient = 300 * time.Millisecond // waits for a report that may come
	limit   = 10 * time.Second       // waits for a report that must come
	looks   = 20                     // as often must nothing be found before none comes, for a busy machine can take the time away
)

// A scope closes the sockets that a situation has opened. Its methods panic with a failure, which run returns.
type scope struct{ opened []io.Closer }

type failure struct{ err error }

func (c *scope) check(what string, err error) {
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", what, err)})
	}
}

func run(f func(c *scope) string) (text string, err error) {
	c := &scope{}
	defer func() {
		for _, o := range c.opened {
			o.Close()
		}
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	return f(c), nil
}

func (c *scope) keep(s *sock.Socket, err error) *sock.Socket {
	c.check("socket", err)
	c.opened = append(c.opened, s)
	return s
}

// wait waits until done returns true.
func (c *scope) wait(what string, done func() bool) {
	for end := time.Now().Add(limit); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.check(what, errors.New("timed out"))
		}
	}
}

func (c *scope) listener() *sock.Socket {
	return c.keep(sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 8}))
}

func (c *scope) fresh(n sock.Network) *sock.Socket { return c.keep(sock.New(n)) }

func (c *scope) connect(s, to *sock.Socket) {
	if err := s.Connect(to.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
		c.check("connect", err)
	}
}

func (c *scope) accept(l *sock.Socket) *sock.Socket {
	var s *sock.Socket
	c.wait("accept", func() (done bool) {
		a, err := l.Accept()
		if err == sock.ErrWouldBlock {
			return false
		}
		s = c.keep(a, err)
		return true
	})
	return s
}

func (c *scope) tcp() (s, peer *sock.Socket) {
	l := c.listener()
	peer = c.fresh(sock.TCP4)
	c.connect(peer, l)
	return c.accept(l), peer
}

func (c *scope) udp() (s, peer *sock.Socket) {
	s, peer = c.fresh(sock.UDP4), c.fresh(sock.UDP4)
	for _, u := range []*sock.Socket{s, peer} {
		c.check("bind", u.Bind(sock.Loopback))
	}
	c.connect(s, peer)
	c.connect(peer, s)
	return s, peer
}

func (c *scope) unix(datagrams bool) (s, peer *sock.Socket) {
	s, peer, err := sock.UnixPair(datagrams)
	c.keep(s, err)
	return s, c.keep(peer, nil)
}

func (c *scope) send(s *sock.Socket, data string) {
	_, err := s.Send([]byte(data))
	c.check("send", err)
}

// arrives waits until a socket has something to receive, and does not receive it.
func (c *scope) arrives(s *sock.Socket) {
	c.wait("arrival", func() bool { return peek(s.Handle()) })
}

func (c *scope) deliver(from, to *sock.Socket, data string) {
	c.send(from, data)
	c.arrives(to)
}

func (c *scope) shut(s *sock.Socket, how sock.How) { c.check("shutdown", s.Shutdown(how)) }

func (c *scope) drain(s *sock.Socket) {
	b := make([]byte, 64<<10)
	for {
		if _, err := s.Recv(b); err == sock.ErrWouldBlock {
			return
		} else {
			c.check("receive", err)
		}
	}
}

// fill sends until the socket buffer is full, and still is after the peer's delayed acknowledgments. It returns the number of
// bytes. The buffers have a size, because the system would enlarge its own in steps that may be seconds apart.
func (c *scope) fill(s, peer *sock.Socket) (sent int) {
	const size = 64 << 10
	c.check("buffer", s.SetWriteBuffer(size))
	c.check("buffer", peer.SetReadBuffer(size))
	b := make([]byte, size)
	for full := 0; full < 6; {
		n, err := s.Send(b)
		switch err {
		case nil:
			sent += n
			full = 0
		case sock.ErrWouldBlock:
			full++
			time.Sleep(soon)
		default:
			c.check("send", err)
		}
	}
	return sent
}

// receive receives n bytes. To receive what has arrived makes no room: the rest may stay with the sender until it probes.
func (c *scope) receive(s *sock.Socket, n int) {
	b := make([]byte, 64<<10)
	c.wait("bytes", func() bool {
		k, err := s.Recv(b)
		if err != sock.ErrWouldBlock {
			c.check("receive", err)
		}
		n -= k
		return n <= 0
	})
}

// reset aborts a connection.
func (c *scope) reset(peer *sock.Socket) {
	c.check("linger", peer.SetLinger(0))
	c.check("close", peer.Close())
}

// takeError waits until a socket has an error, for at most four seconds, and reads it.
func takeError(s *sock.Socket) {
	for end := time.Now().Add(4 * time.Second); s.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
}

// A dup is a second handle of a socket.
type dup uintptr

func (d dup) handle() uintptr { return uintptr(d) }

// handleOf returns the handle of a connection or file, which remains open during the situation.
func handleOf(c *scope, f syscall.Conn) (h uintptr) {
	raw, err := f.SyscallConn()
	c.check("SyscallConn", err)
	c.check("Control", raw.Control(func(fd uintptr) { h = fd }))
	return h
}

// refuse makes a connect that is refused. No socket is bound to the address, because NetBSD and DragonFly do not answer for
// a socket that is bound and does not listen.
func (c *scope) refuse(s *sock.Socket) {
	unused := c.fresh(sock.TCP4)
	c.check("bind", unused.Bind(sock.Loopback))
	at := unused.LocalAddr()
	unused.Close()
	if err := s.Connect(at); err == nil {
		c.check("connect", errors.New("want an error"))
	}
}
