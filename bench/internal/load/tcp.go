package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A tcp is one thread of TCP load.
type tcp struct {
	cfg     Config
	ep      *epoll
	thread  int
	conns   []conn
	pattern pattern
	buf     []byte
	count   *atomic.Uint64
	done    uint64 // answers
	pace    *pace  // nil: the next request follows the answer
}

// A conn is a connection and where its stream is.
type conn struct {
	fd        int // -1: none
	id        int
	sent, got uint64
}

func (t *tcp) run(ctx context.Context, stand func()) error {
	t.conns = make([]conn, share(t.cfg.Connections, t.cfg.Threads, t.thread))
	for i := range t.conns {
		t.conns[i].fd = -1
	}
	for i := range t.conns {
		c := &t.conns[i]
		c.id = i*t.cfg.Threads + t.thread
		if err := t.open(c, i); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	switch t.cfg.Kind {
	case Idle:
		return t.idle(ctx, stand)
	case Accept:
		stand()
		for i := range t.conns {
			if err := t.request(&t.conns[i], 1); err != nil {
				return err
			}
		}
		return t.loop(ctx, t.churn)
	}
	stand()
	if t.cfg.Rate > 0 {
		var err error
		if t.pace, err = newPace(t.ep, t.cfg.Rate/float64(t.cfg.Threads), max(t.cfg.Burst, 1)); err != nil {
			return err
		}
		return t.loop(ctx, func(*conn, int, int) error { return nil })
	}
	for i := range t.conns {
		if c := &t.conns[i]; t.cfg.Busy == 0 || c.id < t.cfg.Busy {
			if err := t.request(c, t.cfg.Depth); err != nil {
				return err
			}
		}
	}
	return t.loop(ctx, t.again)
}

func (t *tcp) close() {
	if t.pace != nil {
		t.pace.close()
	}
	for _, c := range t.conns {
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
	}
}

// loop has each answer handled until the context is done.
func (t *tcp) loop(ctx context.Context, answered func(c *conn, index, n int) error) error {
	for ctx.Err() == nil {
		events, err := t.ep.wait()
		if err != nil {
			return err
		}
		for i := range events {
			index := int(events[i].Fd)
			if index == onTime {
				if err := t.sendDue(); err != nil {
					return err
				}
				continue
			}
			c := &t.conns[index]
			n, err := t.receive(c)
			if err == nil && n > 0 {
				err = answered(c, index, n)
			}
			if err != nil {
				return fmt.Errorf("connection %d: %w", c.id, err)
			}
		}
		t.count.Store(t.done)
	}
	return nil
}

// again sends as many requests as were answered.
func (t *tcp) again(c *conn, _, n int) error { return t.request(c, n) }

// churn resets the connection and makes another.
func (t *tcp) churn(c *conn, index, _ int) error {
	unix.Close(c.fd)
	c.fd, c.sent, c.got = -1, 0, 0
	if err := t.open(c, index); err != nil {
		return err
	}
	return t.request(c, 1)
}

// idle has one request answered per connection, a few at a time, and then waits.
func (t *tcp) idle(ctx context.Context, stand func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := 0
	more := func() error {
		if next == len(t.conns) {
			return nil
		}
		next++
		return t.request(&t.conns[next-1], 1)
	}
	for range 16 {
		if err := more(); err != nil {
			return err
		}
	}
	return t.loop(ctx, func(*conn, int, int) error {
		if t.done == uint64(len(t.conns)) {
			stand()
		}
		return more()
	})
}

// open connects. The close of a connection resets it, so that no port is kept from being used again.
func (t *tcp) open(c *conn, index int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c.fd = fd
	err = errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: source(c.id)}),
	)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(t.cfg.Addr)); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return t.ep.add(fd, index)
}

// source is the address that a connection comes from: each has ports for ten thousand.
func source(id int) [4]byte { return [4]byte{127, 0, 0, byte(1 + id/10_000)} }

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func (t *tcp) request(c *conn, n int) error {
	b := t.pattern.at(c.id, c.sent, n*t.cfg.Size)
	k, errno := send(c.fd, b)
	if errno != 0 {
		return fmt.Errorf("send: %w", errno)
	}
	if k < len(b) { // never in flight more than any socket's buffer takes
		return fmt.Errorf("send took %d of %d bytes", k, len(b))
	}
	c.sent += uint64(k)
	return nil
}

// receive takes what has come, and returns how many answers that completed.
func (t *tcp) receive(c *conn) (answers int, err error) {
	n, errno := recv(c.fd, t.buf)
	switch {
	case errno == unix.EAGAIN:
		return 0, nil
	case errno != 0:
		return 0, fmt.Errorf("receive: %w", errno)
	case n == 0:
		return 0, errors.New("the server ended it")
	case c.got+uint64(n) > c.sent:
		return 0, errors.New("more came back than was sent")
	case !bytes.Equal(t.buf[:n], t.pattern.at(c.id, c.got, n)):
		return 0, errors.New("what came back is not what was sent")
	}
	size := uint64(t.cfg.Size)
	before := c.got / size
	c.got += uint64(n)
	answers = int(c.got/size - before)
	t.done += uint64(answers)
	return answers, nil
}
