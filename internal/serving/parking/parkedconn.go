package parking

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/internal/serving/wheel"
)

// A parkedConn is the lot's record of a connection, from its first Park until it is closed or unparked. It is the key
// of the connection's registration.
type parkedConn struct {
	timer wheel.Timer[*parkedConn]
	base  syscall.Conn // the connection with the descriptor

	mu        sync.Mutex
	state     state
	why       Cause
	await     Awaited
	unsettled bool // a worker must settle the connection before its function runs (see proxyheader.go)
	keeping   keeping
	// pace counts the consecutive calls of the function that began soon after Park. While it is negative,
	// the connection is not kept.
	pace int8

	parkedAt instant
	runner   *worker       // the worker that runs the function, or nil
	due      time.Duration // when the idle timeout expires, since the lot's start; 0 is never
	conn     net.Conn
	fn       func(net.Conn)
}

// control calls f with the descriptor of the connection. It fails if the connection is closed.
func (pc *parkedConn) control(f func(uintptr)) error {
	raw, err := pc.base.SyscallConn() // keeping it would cost 16 bytes for each connection
	if err != nil {
		return err
	}
	return raw.Control(f)
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
	settling              // a worker settles the connection, and then makes the call or parks the connection (see proxyheader.go)
	kept                  // the worker that runs the function makes the call (see steady.go)
	removed               // like unparked, and no longer in the table; final
)

// An Awaited says what makes the function of a parked connection run.
type Awaited uint8

const (
	AwaitRead    Awaited = 1 << iota // a Read would not block
	AwaitWrite                       // a Write would not block
	AwaitEnd                         // the peer has ended its stream; bytes stay in the socket
	AwaitReset                       // the connection has failed
	AwaitNothing Awaited = 0         // the connection is not parked
)

// filter returns the events to register for; EventErr needs none. For AwaitWrite alone EventHangup is
// not among them: the end of the peer's stream would be notified each time.
func (a Awaited) filter() (f socknotify.Events) {
	if a&AwaitRead != 0 {
		f = socknotify.EventIn | socknotify.EventHangup
	}
	if a&AwaitWrite != 0 {
		f |= socknotify.EventOut
	}
	if a&AwaitEnd != 0 {
		f |= socknotify.EventHangup
	}
	return f
}

// A Cause says what to do before the call. A later one outweighs an earlier one.
type Cause uint8

const (
	Readable Cause = iota // nothing
	woken                 // nothing; the call is made although there may be nothing to read
	Expired               // set a read deadline in the past
	Evicted               // close the connection
)

// dispatch makes the call of a parked connection happen now.
func (l *Lot) dispatch(pc *parkedConn, why Cause) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	l.dispatchLocked(pc, why)
}

// dispatchLocked is dispatch for a caller that holds pc.mu. It reports whether the call was waiting
// for something.
func (l *Lot) dispatchLocked(pc *parkedConn, why Cause) bool {
	switch {
	case pc.state == parked, pc.state == kept:
		pc.state, pc.why = queued, why
		l.port.Post(pc, 0) // cannot fail: the port is open as long as a connection is parked
	case pc.state == settling, pc.state == queued && pc.unsettled && why != Expired:
		l.endSettling(pc, why)
	default:
		return false
	}
	return true
}

// expire is called by the timer wheel.
func (l *Lot) expire(pc *parkedConn) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	// The connection may have been parked again since the timer fired.
	if pc.due != 0 && l.Now() >= pc.due {
		l.dispatchLocked(pc, Expired)
	}
}

// A call is one call of a function.
type call struct {
	conn net.Conn
	fn   func(net.Conn) // nil if there is no call to make
	why  Cause
}

// take ends the parking and returns its call if pc is in state from. If the connection must be settled first, take makes
// that pc's state and returns a call without a function. If pc is not in state from, another goroutine has won the call,
// and take returns the zero call.
func (l *Lot) take(pc *parkedConn, from state, events socknotify.Events, w *worker) call {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state != from {
		return call{}
	}
	if from == parked && pc.await&(AwaitEnd|AwaitReset) != 0 &&
		events&(pc.await.filter()|socknotify.EventErr) == 0 {
		return call{} // the notification of an earlier parking, which has ended otherwise
	}
	if pc.unsettled && pc.why <= woken {
		return call{conn: l.beginSettling(pc)}
	}
	l.updatePace(pc)
	return l.endParkingFor(pc, w)
}

// endParkingFor ends the parking and returns the call, which w makes. The caller holds pc.mu.
func (l *Lot) endParkingFor(pc *parkedConn, w *worker) call {
	c := call{pc.conn, pc.fn, pc.why}
	l.endParking(pc)
	pc.runner = w
	return c
}

// endParking ends a parking. The caller holds pc.mu, and must call l.leave after the call or instead of it.
func (l *Lot) endParking(pc *parkedConn) {
	if pc.due != 0 && pc.state != kept {
		l.wheel.Stop(pc)
	}
	pc.state, pc.why, pc.conn, pc.fn, pc.due = unparked, Readable, nil, nil, 0
	pc.await, pc.unsettled, pc.keeping = AwaitRead, false, keepEmpty
	l.stats.parked.Add(-1)
}

// run makes the pending call of pc, unless another goroutine has won it, and then the calls that are kept for w.
func (l *Lot) run(w *worker, r ready) {
	pc := r.pc
	c := l.take(pc, r.from, r.events, w)
	if c.fn == nil && c.conn != nil {
		if l.settle(pc, c.conn.(*Conn)) {
			return // it is parked again
		}
		c = l.take(pc, settling, 0, w)
	}
	if c.fn == nil {
		return
	}
	w.current.Store(pc)
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
		conn.why, conn.unsettled = c.why, false
	}
	switch c.why {
	case Expired:
		l.stats.expired.Add(1)
		l.SetReadDeadline(c.conn, unwrap.Past)
	case Evicted:
		l.Guard(c.conn, func() { c.conn.Close() })
	}
	if !l.config.TimeCalls {
		c.fn(c.conn)
		return
	}
	began := time.Now()
	c.fn(c.conn)
	l.stats.callTime.Record(time.Since(began))
}
