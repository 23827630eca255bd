package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/socknotify/socknotify/sock"
)

var errNotCalled = errors.New("server: Hijack is for the handler's calls")

func (c *conn) Hijack() (net.Conn, error) {
	t := c.tls()
	if t != nil {
		t.writing.Lock()
		defer t.writing.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return nil, errHijacked
	case word&(wClosing|wAborting|wDead) != 0:
		return nil, net.ErrClosed
	case word&wOwned == 0:
		return nil, errNotCalled
	case c.wrapped && t == nil:
		return nil, fmt.Errorf("server: Hijack: %w", errors.ErrUnsupported)
	}
	h := &hijacked{conn: c, ready: make(chan struct{})}
	if word&wOut == 0 {
		if err := c.giveSocket(h); err != nil {
			return nil, err
		}
	}
	c.ensureExtra().hijacked = h
	c.word.Or(wHijacked)
	if t != nil {
		t.nc = h
		return t.tls, nil
	}
	return h, nil
}

// give makes a net.Conn of the socket. The lock is held.
func (c *conn) giveSocket(h *hijacked) error {
	nc, err := sock.Attach(c.socket())
	if err != nil {
		return err
	}
	c.server().restoreKeepAlive(nc)
	c.held.Release() // it is closed now
	c.word.Or(wDetached)
	h.resolve(nc, nil)
	return nil
}

// handOver gives the socket to a hijacker who waits for it, when nothing is queued any more. The caller owns
// the connection.
func (c *conn) handOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wHijacked|wDetached|wOut|wAborting|wDead) != wHijacked {
		return
	}
	if err := c.giveSocket(c.extra.hijacked); err != nil {
		c.failLocked(err, wAborting)
	}
}

// closeHijacked is Close for a hijacker. Once the connection was given back it is not the hijacker's to close.
func (c *conn) closeHijacked(h *hijacked) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil || c.extra.hijacked != h {
		return net.ErrClosed
	}
	return c.end(wClosing)
}

// whyEnded is what a hijacker is told whose connection ends before it has the socket. The lock is held.
func (c *conn) whyEnded() error {
	if c.extra.failed {
		return c.extra.cause
	}
	return net.ErrClosed
}

// endHijacked closes a connection whose socket a hijacker has. The lock is held.
func (c *conn) endHijacked(bits uint32) {
	x := c.extra
	if l, ok := x.hijacked.nc.(interface{ SetLinger(int) error }); ok && bits&wReset != 0 {
		l.SetLinger(0)
	}
	x.hijacked.nc.Close()
	c.releaseHijacked(bits | wAborting) // the socket is gone
}

// takeBack ends the waiting for a socket that the server has still. The lock is held.
func (c *conn) cancelHijack(why error) {
	c.extra.hijacked.resolve(nil, why)
	c.extra.hijacked = nil
}

func (c *conn) Resume() error {
	t := c.tls()
	if t != nil {
		t.writing.Lock()
		defer t.writing.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.server()
	word := c.word.Load()
	switch {
	case word&(wClosing|wAborting|wDead) != 0:
		return net.ErrClosed
	case word&(wHijacked|wDetached) == wHijacked:
		c.cancelHijack(net.ErrClosed)
		if t != nil {
			t.nc = nil
		}
		c.touch(uint32(s.wheel.Now()))
		c.word.And(^uint32(wHijacked | wPaused))
		c.set(wResumed)
	case word&wHijacked != 0:
		socket, err := sock.Detach(c.extra.hijacked.nc, sock.MakeNonblocking)
		if err != nil {
			return err
		}
		if c.held, err = socket.Hold(); err != nil {
			return err
		}
		c.word.And(^uint32(wDetached))
		if t != nil {
			t.nc = nil
		}
		c.extra.hijacked = nil
		c.dropExtra()
		c.touch(uint32(s.wheel.Now()))
		c.releaseHijacked(wResumed)
	case word&wPaused != 0:
		c.touch(uint32(s.wheel.Now()))
		c.word.And(^uint32(wPaused))
		c.set(wResumed)
	}
	return nil
}

// releaseHijacked ends a hijack: the owner goes on, or a worker if the owner has let go already. The lock is
// held.
func (c *conn) releaseHijacked(bits uint32) {
	for {
		word := c.word.Load()
		next := word&^(wHijacked|wReleased|wPaused) | bits
		if word&wReleased != 0 {
			next &^= wOwned
		}
		if c.word.CompareAndSwap(word, next) {
			if word&wReleased != 0 {
				c.wake()
			}
			return
		}
	}
}
