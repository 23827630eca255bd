package conn

import (
	"time"

	"github.com/socknotify/socknotify/internal/serving/wheel"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// An alarm finds out which timeouts of a connection have expired, and when the next one will.
type alarm struct {
	wheel *wheel.Wheel[*Conn]
	next  time.Duration // until the next timeout; 0 if there is none
}

// past reports whether a limit has passed since a tick. A limit of 0 is none.
func (a *alarm) past(limit time.Duration, from uint32) bool {
	if limit == 0 {
		return false
	}
	waited := uint64(uint32(a.wheel.Now()) - from)
	ticks := a.wheel.Ticks(limit) + 1 // the first tick may have been nearly over
	if waited >= ticks {
		return true
	}
	a.in(a.wheel.Duration(ticks - waited))
	return false
}

// in notes that there is something to do after d, unless that is 0.
func (a *alarm) in(d time.Duration) {
	if d > 0 && (a.next == 0 || d < a.next) {
		a.next = d
	}
}

// expired is called when a connection's timer fires. It closes the connection if a timeout has
// expired, and otherwise sets the timer for the next one.
func (s *Shared) expired(c *Conn) {
	if c == s.ticker {
		s.server.Watch()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&(wAborting|wDead) != 0 {
		return
	}
	a := &alarm{wheel: s.Wheel}
	if why := c.timedOut(a, word); why != nil {
		c.failLocked(why)
		return
	}
	if c.rated {
		a.in(c.ratesExpired(word))
	}
	if x := c.extra; x != nil && x.timers != nil && word&wHandshake == 0 {
		if now := s.Wheel.Now(); x.timers.due > now {
			a.in(s.Wheel.Duration(x.timers.due - now))
		} else {
			c.set(wDue)
		}
	}
	if a.next > 0 {
		s.Wheel.Set(c, a.next-engine.Tick) // Set adds one
	}
}

// timedOut returns the error of a timeout that has expired, and counts it, or returns nil. The lock
// is held.
func (c *Conn) timedOut(a *alarm, word uint32) error {
	k := &c.shared().Counts
	switch {
	case word&wHandshake != 0:
		if a.past(c.shared().HandshakeTimeout, c.extra.opening.began) {
			return ErrHandshake // counted when the connection ends
		}
	case c.isSlow(a, word):
		k.Slow.Add(1)
		return ErrSlow
	case c.isStalled(a, word):
		k.Stalled.Add(1)
		return ErrMessageTimeout
	case c.isIdle(a, word):
		k.Idle.Add(1)
		return ErrIdle
	}
	return nil
}

// isSlow reports whether the peer has not taken queued bytes for too long. The lock is held.
func (c *Conn) isSlow(a *alarm, word uint32) bool {
	if word&wOut == 0 {
		return false
	}
	limit := c.writeLimit()
	if word&wClosing != 0 {
		limit = c.lingerLimit()
	}
	if word&(wNoOut|wClosing) == wNoOut {
		c.extra.out.since = a.wheel.Now() // the peer is not waited for
	}
	return a.past(limit, uint32(c.extra.out.since))
}

// isStalled reports whether half a message has waited for the rest for too long. The lock is held.
func (c *Conn) isStalled(a *alarm, word uint32) bool {
	x := c.extra
	if x == nil || x.in == nil || x.in.half == 0 || word&(wClosing|wHijacked) != 0 {
		return false
	}
	if word&(wPaused|wFull|wAgain|wNoIn) != 0 {
		x.in.half = max(uint32(a.wheel.Now()), 1)
	}
	if !a.past(c.shared().ReadTimeout, x.in.half) {
		return false
	}
	if word&wOwned != 0 { // Data may be about to consume it
		a.in(engine.Tick)
		return false
	}
	return true
}

// isIdle reports whether nothing was received or written for too long, or with SilentIsIdle nothing
// was received. The lock is held.
func (c *Conn) isIdle(a *alarm, word uint32) bool {
	limit := c.idleLimit()
	if limit == 0 || word&wClosing != 0 {
		return false
	}
	from := c.active.Load()
	sending := word&(wOut|wNoOut) == wOut
	if c.shared().SilentIsIdle {
		sending = sending && word&(wFull|wHijacked|wEOF) != 0 // nothing is received then
	}
	if word&(wOwned|wPaused|wNoIn) != 0 || sending {
		from = uint32(a.wheel.Now())
		c.touch(from)
	}
	return a.past(limit, from)
}

func (c *Conn) SetIdleTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wAborting|wDead) != 0 {
		return
	}
	s := c.shared()
	c.touch(uint32(s.Wheel.Now()))
	c.ensureExtra().own.idle = d
	if limit := c.idleLimit(); limit > 0 {
		s.Wheel.Hasten(c, limit) // expired checks the other timeouts as well
	}
}

func (c *Conn) SetWriteTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&(wAborting|wDead) != 0 {
		return
	}
	s, x := c.shared(), c.ensureExtra()
	x.own.slow = d
	if word&wOut != 0 {
		x.out.since = s.Wheel.Now()
		if c.writeLimit() > 0 || word&wClosing != 0 {
			s.Wheel.Hasten(c, c.lingerLimit())
		}
	}
}
