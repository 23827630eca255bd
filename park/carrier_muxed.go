package park

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A muxedCarrier is a *muxedConn.
type muxedCarrier endpoint

// A muxedConn is a stream of HTTP/2 as a connection. It has no descriptor, so the lot has it in no
// table: it is parked for its timeouts, and until it is woken.
//
// A stream says once that something has changed, and not what, where a socket says for what it is
// ready as often as the lot asks. So a muxedConn remembers for what a change was not used yet: a
// read and a write clear that before they find out what there is.
type muxedConn struct {
	unbound
	noConn
	owner   owner
	stream  muxed.Stream
	changed atomic.Uint32 // an awaited
}

// newMuxedConn returns the connection of o, for which TakeStream sets the stream.
func newMuxedConn(o owner) *muxedConn {
	c := &muxedConn{owner: o}
	c.changed.Store(uint32(anyChange)) // before the first Wake
	return c
}

const anyChange = awaitRead | awaitWrite | awaitReset

// Wake is called by the stream of HTTP/2, which is locked.
func (c *muxedConn) Wake() {
	c.changed.Or(uint32(anyChange))
	c.wake(c.owner.lot())
}

func (e *muxedCarrier) in() *muxedConn        { return e.conn.(*muxedConn) }
func (e *muxedCarrier) netConn() net.Conn     { return e.in().stream.NetConn() }
func (e *muxedCarrier) emptied(n, _ int) bool { return n < readAheadSize }
func (e *muxedCarrier) unsent() int           { return 0 }
func (e *muxedCarrier) writer() queueWriter   { return functionWriter }
func (e *muxedCarrier) mayWait() bool         { return false }
func (e *muxedCarrier) quiet() bool           { return false }
func (e *muxedCarrier) notifiesOnce() bool    { return true }
func (e *muxedCarrier) wake(o owner)          { e.in().wake(o.lot()) }

func (e *muxedCarrier) failure() error {
	c := e.in()
	c.changed.And(^uint32(awaitReset))
	return c.stream.Err()
}

func (e *muxedCarrier) read(b []byte, _ patience) (int, error) {
	c := e.in()
	c.changed.And(^uint32(awaitRead))
	n, err := c.stream.Read(b)
	if n == len(b) {
		c.changed.Or(uint32(awaitRead)) // there may be more
	}
	return n, err
}

// write writes what the client's windows permit.
func (e *muxedCarrier) write(_ owner, b []byte) (int, error) {
	c := e.in()
	c.changed.And(^uint32(awaitWrite))
	return c.stream.Write(b), nil
}

func (e *muxedCarrier) park(o owner, want awaited, left time.Duration) error {
	c, again, err := e.in(), true, error(nil)
	for again && err == nil { // it has changed, which await finds
		again, err = o.lot().parkUnbound(&c.unbound, c, runMuxed, left)
	}
	if err == nil {
		e.await(o, awaitNothing, want)
	}
	return err
}

func runMuxed(conn net.Conn) { conn.(*muxedConn).owner.run() }

// await makes the function run if there is already what is awaited.
func (e *muxedCarrier) await(o owner, armed, want awaited) awaited {
	if e.in().changed.Load()&uint32(armed|want) != 0 {
		e.wake(o)
	}
	return armed | want
}

func (e *muxedCarrier) close(o owner, _ bool) error {
	e.in().stream.Close()
	e.wake(o)
	return nil
}

func (e *muxedCarrier) reset(o owner, _ bool) error {
	e.in().stream.Reset()
	e.wake(o)
	return nil
}

// CloseWrite ends the response.
func (c *muxedConn) CloseWrite() error {
	c.stream.CloseWrite()
	return nil
}

// Close ends the stream of HTTP/2.
func (c *muxedConn) Close() error {
	c.stream.Close()
	return nil
}

func (c *muxedConn) LocalAddr() net.Addr  { return c.stream.NetConn().LocalAddr() }
func (c *muxedConn) RemoteAddr() net.Addr { return c.stream.NetConn().RemoteAddr() }

// muxedWriter returns the response of a stream that can be taken over, which may be below others.
func muxedWriter(w http.ResponseWriter) (muxed.Writer, error) {
	if below, ok := innermost(w).(muxed.Writer); ok {
		return below, nil
	}
	return nil, http.ErrNotSupported
}

// An unbound is what the lot parks for something that has no descriptor.
type unbound struct {
	parking parkedConn
	woken   bool // the function must look again before it is parked; protected by parking.mu
}

// parkUnbound parks u, as conn, for at most the time idle unless that is negative. It reports whether
// the function must look again instead.
func (l *Lot) parkUnbound(u *unbound, conn net.Conn, f func(net.Conn),
	idle time.Duration) (again bool, err error) {
	if !l.enter() {
		return false, ErrClosed
	}
	pc := &u.parking
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if u.woken {
		u.woken = false
		l.leave()
		return true, nil
	}
	pc.state, pc.conn, pc.fn, pc.parkedAt = parked, conn, f, l.instant()
	l.stats.parked.Add(1)
	l.stats.parks.Add(1)
	if idle > 0 {
		pc.due = durations.Add(l.now(), idle)
		l.wheel.Set(pc, idle)
	}
	return false, nil
}

// wake makes the function look at what has changed.
func (u *unbound) wake(l *Lot) {
	pc := &u.parking
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state == unparked {
		u.woken = true
	} else {
		l.dispatchLocked(pc, woken)
	}
}
