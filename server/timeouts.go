package server

import "time"

// expired is called when a connection's timer fires. It closes the connection if a timeout has expired, and otherwise sets
// the timer for the earliest one.
func (s *server) expired(c *conn) {
	if c == s.ticker {
		s.watch()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&(wAborting|wDead) != 0 {
		return
	}
	var next time.Duration
	left := func(limit time.Duration, from uint32) bool {
		waited := uint64(uint32(s.wheel.Now()) - from)
		ticks := s.wheel.Ticks(limit) + 1 // the first tick may have been nearly over
		if waited >= ticks {
			return false
		}
		if d := s.wheel.Duration(ticks - waited); next == 0 || d < next {
			next = d
		}
		return true
	}
	if word&wHandshake != 0 {
		x := c.extra
		if !left(s.handshakeTimeout(), x.began) {
			why := ErrHandshake
			if x.pre != nil && x.pre.pending {
				why = ErrPreamble
			}
			c.failLocked(why, wAborting)
			return
		}
		if word&wRated != 0 {
			if d := c.ratesExpired(word); d > 0 {
				next = min(next, d)
			}
		}
		s.wheel.Set(c, next-tick) // Set adds one
		return
	}
	if word&wOut != 0 {
		limit := c.writeLimit()
		if word&wClosing != 0 {
			limit = c.lingerLimit()
		}
		if word&(wNoOut|wClosing) == wNoOut {
			c.extra.since = s.wheel.Now() // the peer is not waited for
		}
		if limit > 0 && !left(limit, uint32(c.extra.since)) {
			s.counts.slow.Add(1)
			c.failLocked(ErrSlow, wAborting)
			return
		}
	}
	if x := c.extra; x != nil && x.half != 0 && word&(wClosing|wHijacked) == 0 {
		if word&(wPaused|wFull|wAgain|wNoIn) != 0 {
			x.half = max(uint32(s.wheel.Now()), 1)
		}
		if !left(s.MessageTimeout, x.half) {
			if word&wOwned == 0 {
				s.counts.stalled.Add(1)
				c.failLocked(ErrStalled, wAborting)
				return
			}
			next = tick // Data may be about to consume it
		}
	}
	if limit := c.idleLimit(); limit > 0 && word&wClosing == 0 {
		from := c.active.Load()
		if word&(wOwned|wPaused|wNoIn) != 0 || word&(wOut|wNoOut) == wOut {
			from = uint32(s.wheel.Now()) // the connection is not idle
			c.touch(from)
		}
		if !left(limit, from) {
			s.counts.idle.Add(1)
			c.failLocked(ErrIdle, wAborting)
			return
		}
	}
	sooner := func(d time.Duration) {
		if d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if word&wRated != 0 {
		sooner(c.ratesExpired(word))
	}
	if x := c.extra; x != nil && x.timers != nil {
		if now := s.wheel.Now(); x.timers.due > now {
			sooner(s.wheel.Duration(x.timers.due - now))
		} else {
			c.set(wDue)
		}
	}
	if next > 0 {
		s.wheel.Set(c, next-tick) // Set adds one
	}
}

// idleLimit returns the idle timeout of the connection, or the server's. The lock is held.
func (c *conn) idleLimit() time.Duration {
	if x := c.extra; x != nil && x.idle != 0 {
		return x.idle
	}
	return c.server().IdleTimeout
}

func (c *conn) SetIdleTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wAborting|wDead) != 0 {
		return
	}
	s := c.server()
	c.touch(uint32(s.wheel.Now()))
	if d <= 0 {
		d = -1
	} else {
		s.wheel.Hasten(c, d) // expired checks the other timeouts as well
	}
	c.ensureExtra().idle = d
}

// writeLimit returns the write timeout of the connection, or the server's. The lock is held.
func (c *conn) writeLimit() time.Duration {
	if x := c.extra; x != nil && x.slow != 0 {
		return x.slow
	}
	return c.server().WriteTimeout
}

func (c *conn) SetWriteTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&(wAborting|wDead) != 0 {
		return
	}
	if d <= 0 {
		d = -1
	}
	s, x := c.server(), c.ensureExtra()
	x.slow = d
	if word&wOut != 0 {
		x.since = s.wheel.Now()
		if limit := c.lingerLimit(); d > 0 || word&wClosing != 0 {
			s.wheel.Hasten(c, limit)
		}
	}
}

// lingerLimit returns the write timeout after Close.
func (c *conn) lingerLimit() time.Duration {
	if limit := c.writeLimit(); limit > 0 {
		return limit
	}
	return lingerTime
}
