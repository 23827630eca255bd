package conn

import "time"

func (t *Timer) Stop() bool {
	t.Conn.mu.Lock()
	defer t.Conn.mu.Unlock()
	return t.unlink()
}

func (t *Timer) Reset(d time.Duration) bool {
	c := t.Conn
	c.mu.Lock()
	defer c.mu.Unlock()
	was := t.unlink()
	if c.word.Load()&(wClosing|wAborting|wDead) != 0 {
		return was
	}
	s, x := c.shared(), c.ensureExtra()
	t.due = s.Wheel.Now() + s.Wheel.Ticks(d) + 1
	at := &x.timers
	for *at != nil && (*at).due <= t.due {
		at = &(*at).next
	}
	t.next, *at = *at, t
	s.Wheel.Hasten(c, d)
	return was
}

// unlink removes the timer from its connection's list, and reports whether it was there. The lock
// is held.
func (t *Timer) unlink() bool {
	x := t.Conn.extra
	if x == nil {
		return false
	}
	for at := &x.timers; *at != nil; at = &(*at).next {
		if *at == t {
			*at, t.next = t.next, nil
			t.Conn.dropExtra()
			return true
		}
	}
	return false
}

// fire calls the functions of the timers that are due. The worker owns the connection.
func (o *Owner) fire(c *Conn) {
	c.word.And(^uint32(wDue))
	for {
		t := c.dueTimer()
		if t == nil {
			return
		}
		o.beginCall(c)
		o.returned(c, t.F())
	}
}

// dueTimer removes and returns a timer that is due, or sets the wheel for the next one.
func (c *Conn) dueTimer() *Timer {
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
	s, t := c.shared(), x.timers
	if now := s.Wheel.Now(); t.due > now {
		s.Wheel.Hasten(c, s.Wheel.Duration(t.due-now-1))
		return nil
	}
	t.unlink()
	return t
}
