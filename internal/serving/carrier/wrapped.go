package carrier

import (
	"net"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A wrappedCarrier is a *Conn around a connection that wraps another one, or a connection whose
// socket cannot be used without waiting, as on Windows. A read sets a deadline, and a write is begun
// when the socket has room for it.
type wrappedCarrier Endpoint

func (e *wrappedCarrier) NetConn() net.Conn     { return e.Conn }
func (e *wrappedCarrier) Emptied(n, _ int) bool { return n < parking.ReadAheadSize }
func (e *wrappedCarrier) Unsent() int           { return 0 }
func (e *wrappedCarrier) MayWait() bool         { return true }
func (e *wrappedCarrier) Failure() error        { return nil }
func (e *wrappedCarrier) NotifiesOnce() bool    { return false }
func (e *wrappedCarrier) Wake(o owner)          { o.Lot().Wake(e.Conn) }

func (e *wrappedCarrier) Writer() Writer {
	if e.Socket.OK() {
		return AnyWriter
	}
	return GoroutineWriter
}

func (e *wrappedCarrier) Quiet() bool {
	c, ok := e.Conn.(*parking.Conn)
	return ok && parking.Why(c) != parking.Readable
}

func (e *wrappedCarrier) Read(b []byte, p Patience) (int, error) {
	switch p {
	case Impatient:
		e.Conn.SetReadDeadline(unwrap.Past)
	case ForRecord:
		e.Conn.SetReadDeadline(time.Now().Add(parking.ReadyWait))
	}
	return (*Endpoint)(e).readAndWait(b)
}

// wrappedChunk is the number of bytes that are written at once to a connection that wraps another.
// A socket that can be written to takes as many: Linux reports it when a third of its buffer is
// free.
const wrappedChunk = 16 << 10

func (e *wrappedCarrier) Write(o owner, b []byte) (n int, err error) {
	if !e.Socket.OK() {
		return (*Endpoint)(e).WriteAndWait(o, b)
	}
	for n < len(b) && err == nil && e.Socket.Writable() {
		var m int
		m, err = (*Endpoint)(e).WriteAndWait(o, b[n:min(n+wrappedChunk, len(b))])
		n += m
	}
	return n, err
}

func (e *wrappedCarrier) Park(o owner, want parking.Awaited, left time.Duration) error {
	return o.Lot().ParkWith(e.Conn, parking.Options{IdleTimeout: left, Writable: want&parking.AwaitWrite != 0,
		Deaf: want == parking.AwaitWrite, Fresh: e.Fresh}, o.Function())
}

// Await makes the function run if there is something to read, which may be in the wrapper: only
// ParkWith looks there.
func (e *wrappedCarrier) Await(o owner, armed, want parking.Awaited) parking.Awaited {
	if want&^armed == parking.AwaitRead {
		e.Wake(o)
		return armed
	}
	armed |= want
	o.Lot().Await(e.Conn, armed)
	return armed
}

func (e *wrappedCarrier) Close(o owner, parked bool) error {
	return (*Endpoint)(e).closeIn(o.Lot(), parked)
}
func (e *wrappedCarrier) Reset(o owner, parked bool) error {
	return (*Endpoint)(e).resetIn(o.Lot(), parked)
}

// A recordCarrier is a *Conn around a TLS connection whose records are those of package tlsrecord,
// directly above the socket. It is read and written by the socket without waiting.
type recordCarrier Endpoint

// BindRecords makes the carrier a recordCarrier if the connection is such a one. A TLS connection is
// known to be one after its handshake.
func (e *Endpoint) BindRecords() {
	if e.Kind != WrappedKind || !e.Socket.OK() {
		return
	}
	if c, ok := e.Conn.(*parking.Conn); ok {
		if t, ok := c.Conn.(*tlsrecord.Conn); ok && t.Taken() && unwrap.Plain(t.NetConn()) {
			e.Kind = recordKind
		}
	}
}

func (e *recordCarrier) tls() *tlsrecord.Conn { return e.Conn.(*parking.Conn).Conn.(*tlsrecord.Conn) }

func (e *recordCarrier) NetConn() net.Conn     { return e.Conn }
func (e *recordCarrier) Emptied(n, _ int) bool { return n < parking.ReadAheadSize }
func (e *recordCarrier) Unsent() int           { return e.tls().Unsent() }
func (e *recordCarrier) Writer() Writer        { return AnyWriter }
func (e *recordCarrier) MayWait() bool         { return false }
func (e *recordCarrier) Quiet() bool           { return false }
func (e *recordCarrier) Failure() error        { return nil }
func (e *recordCarrier) NotifiesOnce() bool    { return false }
func (e *recordCarrier) Spliced() bool         { return false }
func (e *recordCarrier) WasReset() bool        { return false }
func (e *recordCarrier) Wake(o owner)          { o.Lot().Wake(e.Conn) }

func (e *recordCarrier) Read(b []byte, _ Patience) (int, error) { return e.ReadBy(&e.Socket, b) }

func (e *recordCarrier) ReadBy(s Socket, b []byte) (n int, err error) {
	if n, err = parking.Drain(e.Conn.(*parking.Conn), b); n > 0 || err != nil {
		return n, err
	}
	n, err = e.tls().TryRead(b, s)
	if serving.IsTimeout(err) {
		e.Conn.SetReadDeadline(time.Time{}) // the lot has set it when the parking expired
		err = nil
	}
	return n, err
}

func (e *recordCarrier) Write(_ owner, b []byte) (int, error) { return e.WriteBy(&e.Socket, b) }

func (e *recordCarrier) WriteBy(s Socket, b []byte) (int, error) { return e.tls().TryWrite(b, s) }

func (e *recordCarrier) Park(o owner, want parking.Awaited, left time.Duration) error {
	c, lot := e.Conn.(*parking.Conn), o.Lot()
	base := e.tls().NetConn()
	conn, f := o.Parked()
	r := &parking.Request{Base: base.(syscall.Conn), Raw: e.Socket.Raw(), Conn: conn, F: f, Idle: left, Await: want,
		Posted: want&parking.AwaitRead != 0 && (e.tls().Arrived() || parking.HasBytesAhead(c))}
	err := lot.ParkSocket(r)
	if err == nil {
		lot.Adopt(c, base)
	}
	return err
}

func (e *recordCarrier) Await(o owner, armed, want parking.Awaited) parking.Awaited {
	return (*wrappedCarrier)(e).Await(o, armed, want)
}

func (e *recordCarrier) Close(o owner, parked bool) error {
	return (*Endpoint)(e).closeIn(o.Lot(), parked)
}
func (e *recordCarrier) Reset(o owner, parked bool) error {
	return (*Endpoint)(e).resetIn(o.Lot(), parked)
}
