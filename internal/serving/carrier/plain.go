package carrier

import (
	"net"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
)

// A plainCarrier is a connection of package net, which is read and written by its socket.
type plainCarrier Endpoint

func (e *plainCarrier) NetConn() net.Conn        { return e.Conn }
func (e *plainCarrier) Emptied(n, size int) bool { return n < size }
func (e *plainCarrier) Unsent() int              { return 0 }
func (e *plainCarrier) Writer() Writer           { return AnyWriter }
func (e *plainCarrier) MayWait() bool            { return false }
func (e *plainCarrier) Quiet() bool              { return false }
func (e *plainCarrier) Failure() error           { return nil }
func (e *plainCarrier) NotifiesOnce() bool       { return false }
func (e *plainCarrier) Spliced() bool            { return true }
func (e *plainCarrier) Wake(o owner)             { o.Lot().Wake(e.Conn) }

func (e *plainCarrier) Read(b []byte, p Patience) (int, error) {
	if p == UntilUnset {
		return (*Endpoint)(e).readAndWait(b)
	}
	return e.Socket.Read(b)
}

func (e *plainCarrier) Write(_ owner, b []byte) (int, error) { return e.Socket.Write(b) }

func (e *plainCarrier) ReadBy(s Socket, b []byte) (int, error)  { return s.Read(b) }
func (e *plainCarrier) WriteBy(s Socket, b []byte) (int, error) { return s.Write(b) }

func (e *plainCarrier) Park(o owner, want parking.Awaited, left time.Duration) error {
	conn, f := o.Parked()
	return o.Lot().ParkSocket(&parking.Request{Base: e.Conn.(syscall.Conn), Raw: e.Socket.Raw(),
		Conn: conn, F: f, Idle: left, Await: want})
}

func (e *plainCarrier) Await(o owner, armed, want parking.Awaited) parking.Awaited {
	armed |= want
	o.Lot().Await(e.Conn, armed)
	return armed
}

// WasReset: the kernel reports a reset to one operation. If that was a write of another goroutine,
// Read sees the end of the stream.
func (e *plainCarrier) WasReset() bool {
	_, tcp := e.Conn.LocalAddr().(*net.TCPAddr)
	return tcp && e.Socket.HungUp()
}

func (e *plainCarrier) Close(o owner, parked bool) error {
	return (*Endpoint)(e).closeIn(o.Lot(), parked)
}
func (e *plainCarrier) Reset(o owner, parked bool) error {
	return (*Endpoint)(e).resetIn(o.Lot(), parked)
}

// A PlainConn is what the lot has of a connection that its owner reads and writes by the socket. The
// lot finds the owner by it, without a function for each. It is one pointer, so an interface holds
// it without an allocation. Nothing is read or written through it, and so deadlines do nothing.
type PlainConn[T plainOwner] struct {
	parking.NoConn
	Owner T
}

// A plainOwner is a *Stream or a *tunnelSide.
type plainOwner interface {
	owner
	Carrier() Carrier
}

func RunPlain[T plainOwner](conn net.Conn) { conn.(PlainConn[T]).Owner.Run() }

func (c PlainConn[T]) Close() error         { return c.Owner.Carrier().NetConn().Close() }
func (c PlainConn[T]) LocalAddr() net.Addr  { return c.Owner.Carrier().NetConn().LocalAddr() }
func (c PlainConn[T]) RemoteAddr() net.Addr { return c.Owner.Carrier().NetConn().RemoteAddr() }
