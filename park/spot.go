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
	due   time.Duration // since the lot's start; 0 is never
	conn  net.Conn
	fn    func(net.Conn)
}

// A spot is dispatched by whoever takes it from parked to queued or running, of whom there may be many: a
// worker with its notification, the wheel, the sweeper, Close, and one who parks another connection with its
// number.
type state uint8

const (
	vacant state = iota // nothing is asked for; a function may be running
	parked
	queued // posted
	gone   // vacant, and out of the table for good
)

type cause uint8

const (
	readable cause = iota
	expired        // the read deadline passes
	evicted        // the lot is closed, and the connection is to be
)

// dispatch queues a parked spot. It reports whether it was parked.
func (l *Lot) dispatch(s *spot, why cause) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != parked {
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

// take makes a spot vacant and returns what was to be run, if it is the caller's: posted, or still parked.
func (l *Lot) take(s *spot, from state) (conn net.Conn, fn func(net.Conn), why cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != from {
		return nil, nil, 0
	}
	conn, fn, why = s.conn, s.fn, s.why
	l.vacate(s)
	return conn, fn, why
}

// vacate ends a parking, under the spot's lock. The caller owes the lot a leave.
func (l *Lot) vacate(s *spot) {
	if s.due != 0 {
		l.wheel.Stop(s)
	}
	s.state, s.why, s.conn, s.fn, s.due = vacant, readable, nil, nil, 0
	l.stats.parked.Add(-1)
}

// run runs the function of a spot that was notified of, unless somebody else has it.
func (l *Lot) run(s *spot, from state) {
	conn, fn, why := l.take(s, from)
	if fn == nil {
		return
	}
	defer l.leave()
	l.stats.running.Add(1)
	defer l.stats.running.Add(-1)
	switch why {
	case expired:
		l.stats.expired.Add(1)
		conn.SetReadDeadline(longAgo)
	case evicted:
		conn.Close()
	}
	fn(conn)
}
