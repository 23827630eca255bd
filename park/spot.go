package park

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/wheel"
)

// A spot is what a lot knows of a connection, from when it is first parked until it is closed. It is the key
// of its registration.
type spot struct {
	timer wheel.Timer[*spot]
	base  syscall.Conn // whose descriptor it is
	raw   syscall.RawConn

	mu    sync.Mutex
	state state
	why   cause
	// Of a parking that is kept, see stream.go: whether Read would return bytes without the socket, whether the
	// worker lingers, and whether its Read was made to end. pace is how often in a row the function came soon
	// after Park, or below 0 if nothing is to be kept.
	held, lingering, roused bool
	pace                    int8

	parkedAt instant
	runner   *worker       // which runs the function, if one does
	due      time.Duration // since the lot's start; 0 is never
	conn     net.Conn
	fn       func(net.Conn)
}

// A spot is dispatched by whoever takes it from parked to queued or running, of whom there may be many: a
// worker with its notification, the wheel, the sweeper, Close, and one who parks another connection with its
// number.
type state uint8

const (
	vacant state = iota // nothing is asked for; a function may be running
	parked
	queued // posted
	kept   // parked, and left to the worker that runs the function
	gone   // vacant, and out of the table for good
)

type cause uint8

const (
	readable cause = iota
	expired        // the read deadline passes
	evicted        // the lot is closed, and the connection is to be
)

// dispatch queues a parked or kept spot. It reports whether it was one.
func (l *Lot) dispatch(s *spot, why cause) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != parked && s.state != kept {
		return false
	}
	s.state, s.why = queued, why
	l.port.Post(s, 0) // which is open as long as a spot is
	return true
}

// expire is the wheel's.
func (l *Lot) expire(s *spot) {
	s.mu.Lock()
	// It may have been parked again since the wheel took it.
	early := s.due == 0 || time.Since(l.start) < s.due
	s.mu.Unlock()
	if !early {
		l.dispatch(s, expired)
	}
}

// A call is one of a function.
type call struct {
	conn net.Conn
	fn   func(net.Conn)
	why  cause
}

// take makes a spot vacant and returns the call that it was for, if it is for w to make: posted, or still parked.
func (l *Lot) take(s *spot, from state, w *worker) call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != from {
		return call{}
	}
	l.paced(s)
	return l.vacateFor(s, w)
}

// vacateFor is vacate for a worker that is to make the call.
func (l *Lot) vacateFor(s *spot, w *worker) call {
	c := call{s.conn, s.fn, s.why}
	l.vacate(s)
	s.runner = w
	return c
}

// vacate ends a parking, under the spot's lock. The caller owes the lot a leave.
func (l *Lot) vacate(s *spot) {
	if s.due != 0 && s.state != kept {
		l.wheel.Stop(s)
	}
	s.state, s.why, s.conn, s.fn, s.due = vacant, readable, nil, nil, 0
	s.held, s.lingering, s.roused = false, false, false
	l.stats.parked.Add(-1)
}

// run makes the call for which a spot was notified of, unless another has taken it, and the next ones that are left
// to w.
func (l *Lot) run(w *worker, s *spot, from state) {
	c := l.take(s, from, w)
	if c.fn == nil {
		return
	}
	w.spot.Store(s)
	if conn, ok := c.conn.(*Conn); ok && conn.spot.Load() != s {
		conn.spot.Store(s)
	}
	for turns := 1; c.fn != nil; turns++ {
		l.make(c)
		c = l.next(w, s, turns)
	}
	w.spot.Store(nil)
}

// make makes a call.
func (l *Lot) make(c call) {
	defer l.leave()
	l.stats.running.Add(1)
	defer l.stats.running.Add(-1)
	switch c.why {
	case expired:
		l.stats.expired.Add(1)
		c.conn.SetReadDeadline(longAgo)
	case evicted:
		c.conn.Close()
	}
	c.fn(c.conn)
}
