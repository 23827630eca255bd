package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/socknotify/socknotify/sock"
)

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
	case c.extra != nil && c.extra.source != nil:
		return nil, errStreaming
	case c.wrapped && t == nil:
		return nil, fmt.Errorf("server: Hijack: %w", errors.ErrUnsupported)
	}
	if c.sendHeld(); c.word.Load()&wAborting != 0 {
		return nil, net.ErrClosed
	}
	word = c.word.Load()
	h := &hijacked{conn: c, ready: make(chan struct{})}
	if word&wOut == 0 {
		if err := c.giveSocket(h); err != nil {
			return nil, err
		}
	}
	h.rest = c.takeInput() // which the handler keeps if there is an error
	c.ensureExtra().hijacked = h
	c.word.Or(wHijacked)
	if t != nil {
		t.nc = h
		if len(h.rest) > 0 {
			return &hijackedTLS{t.tls, h}, nil
		}
		return t.tls, nil
	}
	return h, nil
}

// giveSocket makes a net.Conn of the socket for a hijacker. The lock is held.
func (c *conn) giveSocket(h *hijacked) error {
	nc, err := sock.Attach(c.socket())
	if err != nil {
		return err
	}
	c.server().restoreKeepAlive(nc)
	c.held.Release() // Attach has closed the socket
	c.word.Or(wDetached)
	c.server().counts.hijacked.Add(1)
	h.resolve(nc, nil)
	return nil
}

// handOver gives the socket to a waiting hijacker, once no bytes are queued. The caller owns the connection.
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

// closeHijacked is Close of a hijacker's net.Conn. After Resume it closes nothing.
func (c *conn) closeHijacked(h *hijacked) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil || c.extra.hijacked != h {
		return net.ErrClosed
	}
	return c.end(wClosing)
}

// whyEnded returns the error for a hijacker whose connection ends before it has the socket. The lock is held.
func (c *conn) whyEnded() error {
	if c.extra.failed {
		return c.extra.cause
	}
	return net.ErrClosed
}

// endHijacked closes a connection whose socket was given to a hijacker. The lock is held.
func (c *conn) endHijacked(bits uint32) {
	x := c.extra
	if l, ok := x.hijacked.nc.(interface{ SetLinger(int) error }); ok && bits&wReset != 0 {
		l.SetLinger(0)
	}
	x.hijacked.nc.Close()
	c.releaseHijacked(bits | wAborting) // there is no socket to send on
}

// cancelHijack ends the waiting of a hijacker for the socket, with an error. The lock is held.
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
		h := c.extra.hijacked
		c.cancelHijack(net.ErrClosed)
		if t != nil {
			t.nc = nil
		}
		c.touch(uint32(s.wheel.Now()))
		c.giveBack(h.takeRest())
		c.word.And(^uint32(wHijacked | wPaused))
		c.set(wResumed | wAgain)
	case word&wHijacked != 0:
		socket, err := sock.Detach(c.extra.hijacked.nc, sock.MakeNonblocking)
		if err != nil {
			return err
		}
		if c.held, err = socket.Hold(); err != nil {
			return err
		}
		c.word.And(^uint32(wDetached))
		s.counts.hijacked.Add(-1)
		if t != nil {
			t.nc = nil
		}
		c.giveBack(c.extra.hijacked.takeRest())
		c.extra.hijacked = nil
		c.dropExtra()
		c.touch(uint32(s.wheel.Now()))
		c.releaseHijacked(wResumed | wAgain)
	case word&wPaused != 0:
		c.touch(uint32(s.wheel.Now()))
		c.word.And(^uint32(wPaused))
		c.set(wResumed | wAgain)
	}
	return nil
}

// releaseHijacked ends a hijack. If the owner has released the connection, a worker is woken. The lock is held.
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
