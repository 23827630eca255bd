package park

import (
	"errors"
	"net"
	"time"
)

// A noConn has the methods of a connection that none calls, or that have nothing to do.
type noConn struct{}

func (noConn) Read([]byte) (int, error)         { return 0, errors.ErrUnsupported }
func (noConn) Write([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return nil }
func (noConn) RemoteAddr() net.Addr             { return nil }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }

// A plainConn is what the lot has of a plain connection of a Stream, or of a side of a tunnel. The
// lot finds T by it, without a function for each. It is one pointer, so an interface holds it
// without an allocation. Nothing is read or written through it, because T uses the socket, and so
// deadlines do nothing.
type plainConn[T plainOwner] struct {
	noConn
	owner T
}

// A plainOwner is a *Stream or a *tunnelSide.
type plainOwner interface {
	run() // the function
	netConn() net.Conn
}

func runPlain[T plainOwner](conn net.Conn) { conn.(plainConn[T]).owner.run() }

func (c plainConn[T]) Close() error         { return c.owner.netConn().Close() }
func (c plainConn[T]) LocalAddr() net.Addr  { return c.owner.netConn().LocalAddr() }
func (c plainConn[T]) RemoteAddr() net.Addr { return c.owner.netConn().RemoteAddr() }
