package park

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
)

// A Conn is a connection around another that may have read ahead, such as a *tls.Conn. The other cannot be asked
// whether it has, so parking reads from it under a deadline that has passed, which touches no socket. The result
// is kept in a buffer from a pool, for the next Reads, until they have drained it.
//
// Any number of goroutines may call its methods at once, as those of the connection inside.
type Conn struct {
	net.Conn

	mu       sync.Mutex
	complete bool   // the handshakes below
	ahead    *ahead // nil if nothing is held

	// spot is where it was parked last.
	spot atomic.Pointer[spot]
}

// ahead is what was read ahead. It is in use, and owned by one Conn, while there are bytes or an error.
type ahead struct {
	from, to int   // buf[from:to] is to be read
	err      error // and then this
	buf      [aheadSize]byte
}

// aheadSize is the most that a TLS record holds.
const aheadSize = 16 << 10

var aheads = sync.Pool{New: func() any { return new(ahead) }}

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

// Read returns bytes that parking has read ahead, if there are any, and then the error that it met. Otherwise it
// reads from the connection inside.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) > 0 {
		if n, err := c.drain(p); n > 0 || err != nil {
			return n, err
		}
	}
	return c.Conn.Read(p)
}

// drain reads what is held. It returns neither bytes nor an error if nothing is.
func (c *Conn) drain(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.ahead
	if a == nil {
		return 0, nil
	}
	if a.from < a.to {
		n = copy(p, a.buf[a.from:a.to])
		a.from += n
	} else {
		err, a.err = a.err, nil
	}
	if a.from == a.to && a.err == nil {
		c.release()
	}
	return n, err
}

// release gives the buffer back, under the lock. No byte of it is reachable through c afterwards.
func (c *Conn) release() {
	a := c.ahead
	if a == nil {
		return
	}
	c.ahead = nil
	a.from, a.to, a.err = 0, 0, nil
	aheads.Put(a)
}

// Close closes the connection inside. What was read ahead is dropped.
func (c *Conn) Close() error {
	err := c.Conn.Close() // first, for it ends a Read
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	return err
}

// holds reports whether Read would return without the socket.
func (c *Conn) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead != nil
}

// lookAhead reads what the connection inside holds, and reports whether Read would return without the socket.
//
// Package tls takes a read error of a connection for final unless it is a temporary net.Error, which that of
// a deadline is, and goes on with a record of which it has a part. Not so in a handshake.
func (c *Conn) lookAhead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != nil {
		return true
	}
	if c.complete = c.complete || complete(c.Conn); !c.complete {
		return false // nothing was read yet
	}
	if err := c.Conn.SetReadDeadline(longAgo); err != nil {
		return true // Read will say
	}
	return c.fill()
}

// fill reads ahead, and reports whether Read would return without the socket. c.mu is held.
func (c *Conn) fill() bool {
	if c.ahead != nil {
		return true
	}
	a := aheads.Get().(*ahead)
	a.to, a.err = c.Conn.Read(a.buf[:])
	timeout := isTimeout(a.err) // of the lot's deadline
	if timeout {
		a.err = nil
	}
	c.ahead = a
	if a.to == 0 && a.err == nil {
		c.release()
	}
	return c.ahead != nil || !timeout // after a Read of nothing there may be more
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
