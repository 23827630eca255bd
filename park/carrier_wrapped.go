package park

import (
	"net"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A wrappedCarrier is a *Conn around a connection that wraps another one, or a connection whose
// socket cannot be used without waiting, as on Windows. A read sets a deadline, and a write is begun
// when the socket has room for it.
type wrappedCarrier endpoint

func (e *wrappedCarrier) netConn() net.Conn     { return e.conn }
func (e *wrappedCarrier) emptied(n, _ int) bool { return n < readAheadSize }
func (e *wrappedCarrier) unsent() int           { return 0 }
func (e *wrappedCarrier) mayWait() bool         { return true }
func (e *wrappedCarrier) failure() error        { return nil }
func (e *wrappedCarrier) notifiesOnce() bool    { return false }
func (e *wrappedCarrier) wake(o owner)          { o.lot().Wake(e.conn) }

func (e *wrappedCarrier) writer() queueWriter {
	if e.socket.OK() {
		return anyWriter
	}
	return goroutineWriter
}

func (e *wrappedCarrier) quiet() bool {
	c, ok := e.conn.(*Conn)
	return ok && c.why != readable
}

func (e *wrappedCarrier) read(b []byte, p patience) (int, error) {
	switch p {
	case impatient:
		e.conn.SetReadDeadline(longAgo)
	case forRecord:
		e.conn.SetReadDeadline(time.Now().Add(readyWait))
	}
	return (*endpoint)(e).readAndWait(b)
}

// wrappedChunk is the number of bytes that are written at once to a connection that wraps another.
// A socket that can be written to takes as many: Linux reports it when a third of its buffer is
// free.
const wrappedChunk = 16 << 10

func (e *wrappedCarrier) write(o owner, b []byte) (n int, err error) {
	if !e.socket.OK() {
		return (*endpoint)(e).writeAndWait(o, b)
	}
	for n < len(b) && err == nil && e.socket.Writable() {
		var m int
		m, err = (*endpoint)(e).writeAndWait(o, b[n:min(n+wrappedChunk, len(b))])
		n += m
	}
	return n, err
}

func (e *wrappedCarrier) park(o owner, want awaited, left time.Duration) error {
	return o.lot().ParkWith(e.conn, Options{IdleTimeout: left, Writable: want&awaitWrite != 0,
		deaf: want == awaitWrite, fresh: e.fresh}, o.function())
}

// await makes the function run if there is something to read, which may be in the wrapper: only
// ParkWith looks there.
func (e *wrappedCarrier) await(o owner, armed, want awaited) awaited {
	if want&^armed == awaitRead {
		e.wake(o)
		return armed
	}
	armed |= want
	o.lot().await(e.conn, armed)
	return armed
}

func (e *wrappedCarrier) close(o owner, parked bool) error {
	return (*endpoint)(e).closeIn(o.lot(), parked)
}
func (e *wrappedCarrier) reset(o owner, parked bool) error {
	return (*endpoint)(e).resetIn(o.lot(), parked)
}

// A recordCarrier is a *Conn around a TLS connection whose records are those of package tlsrecord,
// directly above the socket. It is read and written by the socket without waiting.
type recordCarrier endpoint

// bindRecords makes the carrier a recordCarrier if the connection is such a one. A TLS connection is
// known to be one after its handshake.
func (e *endpoint) bindRecords() {
	if e.kind != wrappedKind || !e.socket.OK() {
		return
	}
	if c, ok := e.conn.(*Conn); ok {
		if t, ok := c.Conn.(*tlsrecord.Conn); ok && t.Taken() && unwrap.Plain(t.NetConn()) {
			e.kind = recordKind
		}
	}
}

func (e *recordCarrier) tls() *tlsrecord.Conn { return e.conn.(*Conn).Conn.(*tlsrecord.Conn) }

func (e *recordCarrier) netConn() net.Conn     { return e.conn }
func (e *recordCarrier) emptied(n, _ int) bool { return n < readAheadSize }
func (e *recordCarrier) unsent() int           { return e.tls().Unsent() }
func (e *recordCarrier) writer() queueWriter   { return anyWriter }
func (e *recordCarrier) mayWait() bool         { return false }
func (e *recordCarrier) quiet() bool           { return false }
func (e *recordCarrier) failure() error        { return nil }
func (e *recordCarrier) notifiesOnce() bool    { return false }
func (e *recordCarrier) spliced() bool         { return false }
func (e *recordCarrier) wasReset() bool        { return false }
func (e *recordCarrier) wake(o owner)          { o.lot().Wake(e.conn) }

func (e *recordCarrier) read(b []byte, _ patience) (int, error) { return e.readBy(&e.socket, b) }

func (e *recordCarrier) readBy(s socket, b []byte) (n int, err error) {
	if n, err = e.conn.(*Conn).drain(b); n > 0 || err != nil {
		return n, err
	}
	n, err = e.tls().TryRead(b, s)
	if isTimeout(err) {
		e.conn.SetReadDeadline(time.Time{}) // the lot has set it when the parking expired
		err = nil
	}
	return n, err
}

func (e *recordCarrier) write(_ owner, b []byte) (int, error) { return e.writeBy(&e.socket, b) }

func (e *recordCarrier) writeBy(s socket, b []byte) (int, error) { return e.tls().TryWrite(b, s) }

func (e *recordCarrier) park(o owner, want awaited, left time.Duration) error {
	c, lot := e.conn.(*Conn), o.lot()
	base := e.tls().NetConn()
	conn, f := o.parked()
	r := &parkRequest{base: base.(syscall.Conn), raw: e.socket.Raw(), conn: conn, f: f, idle: left, await: want,
		posted: want&awaitRead != 0 && (e.tls().Arrived() || c.hasBytesAhead())}
	err := lot.park(r)
	if err == nil && c.parkedConn.Load() == nil {
		c.parkedConn.Store(lot.findConn(base)) // the lot has only the owner's plainConn
	}
	return err
}

func (e *recordCarrier) await(o owner, armed, want awaited) awaited {
	return (*wrappedCarrier)(e).await(o, armed, want)
}

func (e *recordCarrier) close(o owner, parked bool) error {
	return (*endpoint)(e).closeIn(o.lot(), parked)
}
func (e *recordCarrier) reset(o owner, parked bool) error {
	return (*endpoint)(e).resetIn(o.lot(), parked)
}
