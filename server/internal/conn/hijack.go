package conn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

func (c *Conn) Hijack() (net.Conn, error) {
	t := c.tls()
	if t != nil {
		defer t.lockAll()()
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
	case c.extra != nil && c.extra.out.source != nil:
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
		return t.hijack(h), nil
	}
	return h, nil
}

// giveSocket makes a net.Conn of the socket for a hijacker. The lock is held.
func (c *Conn) giveSocket(h *hijacked) error {
	nc, err := sock.Attach(c.Socket())
	if err != nil {
		return err
	}
	if tcp, ok := nc.(*net.TCPConn); ok { // for which package net has set its default
		tcp.SetKeepAliveConfig(c.shared().KeepAlive) // errors are ignored, as for accepted connections
	}
	c.held.Release() // Attach has closed the socket
	c.word.Or(wDetached)
	c.shared().Counts.Hijacked.Add(1)
	h.resolve(nc, nil)
	return nil
}

// takeSocket takes it back. The lock is held.
func (c *Conn) takeSocket(h *hijacked) error {
	socket, err := sock.Detach(h.nc, sock.MakeNonblocking)
	if err != nil {
		return err
	}
	if c.held, err = socket.Hold(); err != nil {
		return err
	}
	c.word.And(^uint32(wDetached))
	c.shared().Counts.Hijacked.Add(-1)
	return nil
}

// handOver gives the socket to a waiting hijacker, once no bytes are queued. The caller owns the
// connection.
func (c *Conn) handOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wHijacked|wDetached|wOut|wAborting|wDead) != wHijacked {
		return
	}
	if err := c.giveSocket(c.extra.hijacked); err != nil {
		c.failLocked(err)
	}
}

func (c *Conn) Resume() error {
	t := c.tls()
	if t != nil {
		defer t.lockAll()()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared()
	word := c.word.Load()
	switch {
	case word&(wClosing|wAborting|wDead) != 0:
		return net.ErrClosed
	case word&wHijacked != 0:
		h := c.extra.hijacked
		if word&wDetached == 0 {
			h.resolve(nil, net.ErrClosed)
		} else if err := c.takeSocket(h); err != nil {
			return err
		}
		if t != nil {
			t.resume()
		}
		c.giveBack(h.takeRest())
		c.extra.hijacked = nil
		c.dropExtra()
		c.touch(uint32(s.Wheel.Now()))
		c.releaseHijacked(wResumed | wAgain)
	case word&wPaused != 0:
		c.touch(uint32(s.Wheel.Now()))
		c.word.And(^uint32(wPaused))
		c.set(wResumed | wAgain)
	}
	return nil
}

func (d *deadline) set(at time.Time) {
	d.at = at
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// resolve ends the waiting: there is a net.Conn, or an error. It is called once.
func (h *hijacked) resolve(nc net.Conn, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if nc != nil {
		nc.SetReadDeadline(h.reading.at)
		nc.SetWriteDeadline(h.writing.at)
	}
	h.nc, h.err = nc, err
	close(h.ready)
}

// wait waits for the socket, until the deadline.
func (h *hijacked) wait(op string, d *deadline) error {
	for {
		select {
		case <-h.ready:
			return h.fail(op, h.err)
		default:
		}
		h.mu.Lock()
		at := d.at
		if d.moved == nil {
			d.moved = make(chan struct{})
		}
		moved := d.moved
		h.mu.Unlock()
		var over <-chan time.Time
		if !at.IsZero() {
			left := time.Until(at)
			if left <= 0 {
				return h.fail(op, os.ErrDeadlineExceeded)
			}
			over = time.After(left)
		}
		select {
		case <-h.ready:
		case <-moved:
		case <-over:
		}
	}
}

// fail wraps an error as connections of package net do.
func (h *hijacked) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &net.OpError{Op: op, Source: h.conn.LocalAddr(), Addr: h.conn.RemoteAddr(), Err: err}
	if e.Source != nil {
		e.Net = e.Source.Network()
	}
	return e
}

// A hijackedTLS is the net.Conn of Hijack where TLS and the input have received something.
type hijackedTLS struct {
	*tlsrecord.Conn
	h *hijacked
}

func (t *hijackedTLS) Read(b []byte) (int, error) {
	if n := t.h.readRest(b); n > 0 {
		return n, nil
	}
	return t.Conn.Read(b)
}

// readRest reads bytes of the input.
func (h *hijacked) readRest(b []byte) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = copy(b, h.rest)
	h.rest = h.rest[n:]
	return n
}

// takeRest returns the bytes of the input that were not read.
func (h *hijacked) takeRest() (b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, h.rest = h.rest, nil
	return b
}

func (h *hijacked) Read(b []byte) (int, error) {
	if h.conn.tls() == nil { // otherwise the rest is plaintext, and this is the connection below
		if n := h.readRest(b); n > 0 {
			return n, nil
		}
	}
	if err := h.wait("read", &h.reading); err != nil {
		return 0, err
	}
	return h.nc.Read(b)
}

func (h *hijacked) Write(b []byte) (int, error) {
	if err := h.wait("write", &h.writing); err != nil {
		return 0, err
	}
	return h.nc.Write(b)
}

// Close closes the connection, and the handler's Close follows.
func (h *hijacked) Close() error { return h.conn.closeHijacked(h) }

// NetConn waits for the socket and returns the connection of package net, such as a *net.TCPConn.
// To close the connection, close h and not that. NetConn returns nil if the connection has ended
// before.
func (h *hijacked) NetConn() net.Conn {
	<-h.ready
	return h.nc
}

func (h *hijacked) LocalAddr() net.Addr { return h.conn.LocalAddr() }

func (h *hijacked) RemoteAddr() net.Addr { return h.conn.RemoteAddr() }

func (h *hijacked) SetDeadline(at time.Time) error {
	err := h.SetReadDeadline(at)
	if e := h.SetWriteDeadline(at); err == nil {
		err = e
	}
	return err
}

func (h *hijacked) SetReadDeadline(at time.Time) error {
	return h.setDeadline(&h.reading, at, net.Conn.SetReadDeadline)
}

func (h *hijacked) SetWriteDeadline(at time.Time) error {
	return h.setDeadline(&h.writing, at, net.Conn.SetWriteDeadline)
}

func (h *hijacked) setDeadline(
	d *deadline, at time.Time, set func(net.Conn, time.Time) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.nc != nil:
		return set(h.nc, at)
	case h.err != nil:
		return h.fail("set", h.err)
	}
	d.set(at)
	return nil
}
