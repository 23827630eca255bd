package carrier

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A muxedCarrier is a *MuxedConn.
type muxedCarrier Endpoint

// A MuxedConn is a stream of HTTP/2 as a connection. It has no descriptor, so the lot has it in no
// table: it is parked for its timeouts, and until it is woken.
//
// A stream says once that something has changed, and not what, where a socket says for what it is
// ready as often as the lot asks. So a MuxedConn remembers for what a change was not used yet: a
// read and a write clear that before they find out what there is.
type MuxedConn struct {
	parking.Unbound
	parking.NoConn
	owner   owner
	Stream  muxed.Stream
	changed atomic.Uint32 // an awaited
}

// NewMuxedConn returns the connection of o, for which TakeStream sets the stream.
func NewMuxedConn(o owner) *MuxedConn {
	c := &MuxedConn{owner: o}
	c.changed.Store(uint32(anyChange)) // before the first Wake
	return c
}

const anyChange = parking.AwaitRead | parking.AwaitWrite | parking.AwaitReset

// Wake is called by the stream of HTTP/2, which is locked.
func (c *MuxedConn) Wake() {
	c.changed.Or(uint32(anyChange))
	c.owner.Lot().WakeUnbound(&c.Unbound)
}

func (e *muxedCarrier) in() *MuxedConn        { return e.Conn.(*MuxedConn) }
func (e *muxedCarrier) NetConn() net.Conn     { return e.in().Stream.NetConn() }
func (e *muxedCarrier) Emptied(n, _ int) bool { return n < parking.ReadAheadSize }
func (e *muxedCarrier) Unsent() int           { return 0 }
func (e *muxedCarrier) Writer() Writer        { return FunctionWriter }
func (e *muxedCarrier) MayWait() bool         { return false }
func (e *muxedCarrier) Quiet() bool           { return false }
func (e *muxedCarrier) NotifiesOnce() bool    { return true }
func (e *muxedCarrier) Wake(o owner)          { o.Lot().WakeUnbound(&e.in().Unbound) }

func (e *muxedCarrier) Failure() error {
	c := e.in()
	c.changed.And(^uint32(parking.AwaitReset))
	return c.Stream.Err()
}

func (e *muxedCarrier) Read(b []byte, _ Patience) (int, error) {
	c := e.in()
	c.changed.And(^uint32(parking.AwaitRead))
	n, err := c.Stream.Read(b)
	if n == len(b) {
		c.changed.Or(uint32(parking.AwaitRead)) // there may be more
	}
	return n, err
}

// Write writes what the client's windows permit.
func (e *muxedCarrier) Write(_ owner, b []byte) (int, error) {
	c := e.in()
	c.changed.And(^uint32(parking.AwaitWrite))
	return c.Stream.Write(b), nil
}

func (e *muxedCarrier) Park(o owner, want parking.Awaited, left time.Duration) error {
	c, again, err := e.in(), true, error(nil)
	for again && err == nil { // it has changed, which await finds
		again, err = o.Lot().ParkUnbound(&c.Unbound, c, runMuxed, left)
	}
	if err == nil {
		e.Await(o, parking.AwaitNothing, want)
	}
	return err
}

func runMuxed(conn net.Conn) { conn.(*MuxedConn).owner.Run() }

// Await makes the function run if there is already what is awaited.
func (e *muxedCarrier) Await(o owner, armed, want parking.Awaited) parking.Awaited {
	if e.in().changed.Load()&uint32(armed|want) != 0 {
		e.Wake(o)
	}
	return armed | want
}

func (e *muxedCarrier) Close(o owner, _ bool) error {
	e.in().Stream.Close()
	e.Wake(o)
	return nil
}

func (e *muxedCarrier) Reset(o owner, _ bool) error {
	e.in().Stream.Reset()
	e.Wake(o)
	return nil
}

// CloseWrite ends the response.
func (c *MuxedConn) CloseWrite() error {
	c.Stream.CloseWrite()
	return nil
}

// Close ends the stream of HTTP/2.
func (c *MuxedConn) Close() error {
	c.Stream.Close()
	return nil
}

func (c *MuxedConn) LocalAddr() net.Addr  { return c.Stream.NetConn().LocalAddr() }
func (c *MuxedConn) RemoteAddr() net.Addr { return c.Stream.NetConn().RemoteAddr() }
