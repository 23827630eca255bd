package server

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"
)

// A hijacked is the net.Conn of Hijack. While bytes are queued the server still has the socket, and Read and Write wait
// until it has sent them.
type hijacked struct {
	conn  *conn
	ready chan struct{} // closed when nc or err is set
	nc    net.Conn      // the connection of package net, or
	err   error         // why there is none

	mu               sync.Mutex
	rest             []byte // bytes of the input, which Read returns first
	reading, writing deadline
}

// A deadline is a read or write deadline that applies while there is no socket.
type deadline struct {
	at    time.Time
	moved chan struct{} // closed when at changes; nil if no call waits
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
	*tls.Conn
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

// NetConn waits for the socket and returns the connection of package net, such as a *net.TCPConn. To close the
// connection, close h and not that. NetConn returns nil if the connection has ended before.
func (h *hijacked) NetConn() net.Conn {
	<-h.ready
	return h.nc
}

func (h *hijacked) LocalAddr() net.Addr  { return h.conn.LocalAddr() }
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

func (h *hijacked) setDeadline(d *deadline, at time.Time, set func(net.Conn, time.Time) error) error {
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
