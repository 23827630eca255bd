package park

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// A plainCarrier is a connection of package net, which is read and written by its socket.
type plainCarrier endpoint

func (e *plainCarrier) netConn() net.Conn        { return e.conn }
func (e *plainCarrier) emptied(n, size int) bool { return n < size }
func (e *plainCarrier) unsent() int              { return 0 }
func (e *plainCarrier) writer() queueWriter      { return anyWriter }
func (e *plainCarrier) mayWait() bool            { return false }
func (e *plainCarrier) quiet() bool              { return false }
func (e *plainCarrier) failure() error           { return nil }
func (e *plainCarrier) notifiesOnce() bool       { return false }
func (e *plainCarrier) spliced() bool            { return true }
func (e *plainCarrier) wake(o owner)             { o.lot().Wake(e.conn) }

func (e *plainCarrier) read(b []byte, p patience) (int, error) {
	if p == untilUnset {
		return (*endpoint)(e).readAndWait(b)
	}
	return e.socket.Read(b)
}

func (e *plainCarrier) write(_ owner, b []byte) (int, error) { return e.socket.Write(b) }

func (e *plainCarrier) readBy(s socket, b []byte) (int, error)  { return s.Read(b) }
func (e *plainCarrier) writeBy(s socket, b []byte) (int, error) { return s.Write(b) }

func (e *plainCarrier) park(o owner, want awaited, left time.Duration) error {
	conn, f := o.parked()
	return o.lot().park(&parkRequest{base: e.conn.(syscall.Conn), raw: e.socket.Raw(),
		conn: conn, f: f, idle: left, await: want})
}

func (e *plainCarrier) await(o owner, armed, want awaited) awaited {
	armed |= want
	o.lot().await(e.conn, armed)
	return armed
}

// wasReset: the kernel reports a reset to one operation. If that was a write of another goroutine,
// Read sees the end of the stream.
func (e *plainCarrier) wasReset() bool {
	_, tcp := e.conn.LocalAddr().(*net.TCPAddr)
	return tcp && e.socket.HungUp()
}

func (e *plainCarrier) close(o owner, parked bool) error {
	return (*endpoint)(e).closeIn(o.lot(), parked)
}
func (e *plainCarrier) reset(o owner, parked bool) error {
	return (*endpoint)(e).resetIn(o.lot(), parked)
}

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

// A plainConn is what the lot has of a connection that its owner reads and writes by the socket. The
// lot finds the owner by it, without a function for each. It is one pointer, so an interface holds
// it without an allocation. Nothing is read or written through it, and so deadlines do nothing.
type plainConn[T plainOwner] struct {
	noConn
	owner T
}

// A plainOwner is a *Stream or a *tunnelSide.
type plainOwner interface {
	owner
	carrier() carrier
}

func runPlain[T plainOwner](conn net.Conn) { conn.(plainConn[T]).owner.run() }

func (c plainConn[T]) Close() error         { return c.owner.carrier().netConn().Close() }
func (c plainConn[T]) LocalAddr() net.Addr  { return c.owner.carrier().netConn().LocalAddr() }
func (c plainConn[T]) RemoteAddr() net.Addr { return c.owner.carrier().netConn().RemoteAddr() }
