package server

import (
	"time"
)

// A Timer is a call that [Conn.AfterFunc] has planned. Its methods may be called by any goroutine at any time.
type Timer struct {
	conn *conn
	f    func() error
	due  uint64 // the tick from which it is to be called
	next *Timer // in extra.timers, which is sorted by due
}

// Stop prevents the call, and reports whether it has: false means that the call has begun or is over, or that the
// connection has ended. If Stop is called by one of the handler's calls for the connection, f is not running.
func (t *Timer) Stop() bool {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	return t.unlink()
}

// Reset plans the call for d from now, and reports whether it was planned before.
func (t *Timer) Reset(d time.Duration) bool {
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	was := t.unlink()
	if c.word.Load()&(wClosing|wAborting|wDead) != 0 {
		return was
	}
	s, x := c.server(), c.ensureExtra()
	t.due = s.wheel.Now() + s.wheel.Ticks(d) + 1
	at := &x.timers
	for *at != nil && (*at).due <= t.due {
		at = &(*at).next
	}
	t.next, *at = *at, t
	s.wheel.Hasten(c, d)
	return was
}

// unlink removes the timer from its connection's list, and reports whether it was there. The lock is held.
func (t *Timer) unlink() bool {
	x := t.conn.extra
	if x == nil {
		return false
	}
	for at := &x.timers; *at != nil; at = &(*at).next {
		if *at == t {
			*at, t.next = t.next, nil
			t.conn.dropExtra()
			return true
		}
	}
	return false
}

// fire calls the functions of the timers that are due. The worker owns the connection.
func (w *worker) fire(c *conn) {
	c.word.And(^uint32(wDue))
	for {
		t := c.dueTimer()
		if t == nil {
			return
		}
		w.current = c
		c.beginCall()
		w.returned(c, t.f())
	}
}

// dueTimer removes and returns a timer that is due, or sets the wheel for the next one.
func (c *conn) dueTimer() *Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.extra
	if x == nil || x.timers == nil {
		return nil
	}
	if word := c.word.Load(); word&wOver != 0 {
		if word&wHijacked != 0 {
			c.word.Or(wDue) // for after Resume
		}
		return nil
	}
	s, t := c.server(), x.timers
	if now := s.wheel.Now(); t.due > now {
		s.wheel.Hasten(c, s.wheel.Duration(t.due-now-1))
		return nil
	}
	t.unlink()
	return t
}
