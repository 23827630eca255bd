package park

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
)

// A Conn is a connection around another that may have read ahead, such as a *tls.Conn. What it holds cannot
// be asked for, so parking reads a byte under a deadline that has passed, which touches no socket, and Conn
// keeps that for the next Read.
type Conn struct {
	net.Conn
	complete bool // the handshakes below
	has      bool // first or err is the outcome of the next Read
	first    byte
	err      error
}

// Wrap makes a Conn, or returns conn if it is one.
func Wrap(conn net.Conn) *Conn {
	if c, ok := conn.(*Conn); ok {
		return c
	}
	return &Conn{Conn: conn}
}

// NetConn returns the connection inside.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite calls the method of the connection inside.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("park: CloseWrite: %w", errors.ErrUnsupported)
}

// Read reads from the connection inside, but for the byte, or the error, that parking has read ahead: that is
// what the first Read returns, alone.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.has || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.has = false
	if err := c.err; err != nil {
		c.err = nil
		return 0, err
	}
	p[0] = c.first
	return 1, nil
}

// holds reports whether Read would return without the socket.
//
// Package tls takes a read error of a connection for final unless it is a temporary net.Error, which that of
// a deadline is, and goes on with a record of which it has a part. Not so in a handshake.
func (c *Conn) holds() bool {
	if c.has {
		return true
	}
	if c.complete = c.complete || complete(c.Conn); !c.complete {
		return false // nothing was read yet
	}
	if err := c.Conn.SetReadDeadline(longAgo); err != nil {
		return true // Read will say
	}
	var b [1]byte
	n, err := c.Conn.Read(b[:])
	if n == 0 && err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return false
		}
	}
	c.has = n > 0 || err != nil
	c.first, c.err = b[0], nil
	if n == 0 {
		c.err = err
	}
	return true
}

// complete reports whether no layer has a TLS handshake before it.
func complete(conn net.Conn) bool {
	for conn != nil {
		if t, ok := conn.(*tls.Conn); ok && !t.ConnectionState().HandshakeComplete {
			return false
		}
		in, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = in.NetConn()
	}
	return true
}

// descend finds the descriptor's owner. plain tells that it is conn itself, and of a kind that reads nothing
// ahead.
func descend(conn net.Conn) (base syscall.Conn, plain bool, err error) {
	switch c := conn.(type) {
	case nil:
		return nil, false, notNil(false)
	case *net.TCPConn:
		return c, true, notNil(c != nil)
	case *net.UnixConn:
		return c, true, notNil(c != nil)
	}
	for in := conn; in != nil; {
		if c, ok := in.(syscall.Conn); ok {
			if !reflect.ValueOf(c).Comparable() {
				return nil, false, fmt.Errorf("park: %w: %T is not comparable", socknotify.ErrInvalid, c)
			}
			return c, false, nil
		}
		next, ok := in.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		in = next.NetConn()
	}
	return nil, false, fmt.Errorf("park: %w: %T has neither SyscallConn nor NetConn with one below",
		socknotify.ErrInvalid, conn)
}

func notNil(ok bool) error {
	if !ok {
		return fmt.Errorf("park: %w: a nil connection", socknotify.ErrInvalid)
	}
	return nil
}

var longAgo = time.Unix(1, 0)
