package park

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/wheel"
)

// A parkedConn is the lot's record of a connection, from its first Park until it is closed or unparked. It is the key
// of the connection's registration.
type parkedConn struct {
	timer wheel.Timer[*parkedConn]
	base  syscall.Conn // the connection with the descriptor
	raw   syscall.RawConn

	mu    sync.Mutex
	state state
	why   cause
	// The next fields describe a kept connection (see stream.go).
	held        bool // Read would return without the socket
	lingering   bool // the worker is reading ahead for the next bytes
	interrupted bool // the worker's Read was interrupted
	// pace counts the consecutive calls of the function that began soon after Park. While it is negative,
	// the connection is not kept.
	pace int8

	parkedAt instant
	runner   *worker       // the worker that runs the function, or nil
	due      time.Duration // when the idle timeout expires, since the lot's start; 0 is never
	conn     net.Conn
	fn       func(net.Conn)
}

// The state says whether a call of the function is pending, and who starts it.
//
// Several goroutines may try to start the call concurrently: a worker with the notification, the timer wheel, the
// sweeper, Close, and a Park of another connection with the same descriptor number. The one that changes the state
// from parked to queued or unparked, under the lock, has won; the others do nothing. So the call is made once.
type state uint8

const (
	unparked state = iota // no call is pending; a function may be running
	parked                // a notification starts the call
	queued                // the call is posted to the port
	kept                  // the worker that runs the function makes the call (see stream.go)
	removed               // like unparked, and no longer in the table; final
)

// The cause says what to do before the call.
type cause uint8

const (
	readable cause = iota // nothing
	expired               // set a read deadline in the past
	evicted               // close the connection
)

// dispatch queues the call of a parked or kept connection. It reports whether pc was parked or kept.
func (l *Lot) dispatch(pc *parkedConn, why cause) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state != parked && pc.state != kept {
		return false
	}
	pc.state, pc.why = queued, why
	l.port.Post(pc, 0) // cannot fail: the port is open as long as a connection is parked
	return true
}

// expire is called by the timer wheel.
func (l *Lot) expire(pc *parkedConn) {
	pc.mu.Lock()
	// The connection may have been parked again since the timer fired.
	early := pc.due == 0 || time.Since(l.start) < pc.due
	pc.mu.Unlock()
	if !early {
		l.dispatch(pc, expired)
	}
}

// A call is one call of a function.
type call struct {
	conn net.Conn
	fn   func(net.Conn)
	why  cause
	due  time.Duration // as in parkedConn
}

// take ends the parking and returns its call if pc is in state from. Otherwise another goroutine has won the call, and
// take returns the zero call.
func (l *Lot) take(pc *parkedConn, from state, w *worker) call {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state != from {
		return call{}
	}
	l.updatePace(pc)
	return l.endParkingFor(pc, w)
}

// endParkingFor ends the parking and returns the call, which w makes. The caller holds pc.mu.
func (l *Lot) endParkingFor(pc *parkedConn, w *worker) call {
	c := call{pc.conn, pc.fn, pc.why, pc.due}
	l.endParking(pc)
	pc.runner = w
	return c
}

// endParking ends a parking. The caller holds pc.mu, and must call l.leave after the call or instead of it.
func (l *Lot) endParking(pc *parkedConn) {
	if pc.due != 0 && pc.state != kept {
		l.wheel.Stop(pc)
	}
	pc.state, pc.why, pc.conn, pc.fn, pc.due = unparked, readable, nil, nil, 0
	pc.held, pc.lingering, pc.interrupted = false, false, false
	l.stats.parked.Add(-1)
}

// run makes the pending call of pc, unless another goroutine has won it, and then the calls that are kept for w.
func (l *Lot) run(w *worker, pc *parkedConn, from state) {
	c := l.take(pc, from, w)
	if c.fn == nil {
		return
	}
	w.current.Store(pc)
	if conn, ok := c.conn.(*Conn); ok && conn.parkedConn.Load() != pc {
		conn.parkedConn.Store(pc)
	}
	if l.settle(w, pc, c) {
		w.current.Store(nil)
		return
	}
	for calls := 1; c.fn != nil; calls++ {
		l.invoke(c)
		c = l.next(w, pc, calls)
	}
	w.current.Store(nil)
}

// invoke calls the function.
func (l *Lot) invoke(c call) {
	defer l.leave()
	l.stats.running.Add(1)
	defer l.stats.running.Add(-1)
	if conn, ok := c.conn.(*Conn); ok {
		conn.why = c.why
	}
	switch c.why {
	case expired:
		l.stats.expired.Add(1)
		if !l.guard(c.conn, func() { c.conn.SetReadDeadline(longAgo) }) {
			l.guard(c.conn, func() { c.conn.Close() })
		}
	case evicted:
		l.guard(c.conn, func() { c.conn.Close() })
	}
	if !l.config.TimeCalls {
		c.fn(c.conn)
		return
	}
	began := time.Now()
	c.fn(c.conn)
	l.stats.callTime.Record(time.Since(began))
}
