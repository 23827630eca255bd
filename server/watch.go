package server

import (
	"log/slog"
	"time"
)

const (
	// patience is how many ticks a handler may run until another worker takes its place.
	patience = 2
	// maxStuck is how many workers there are at most beyond those asked for.
	maxStuck = 512
)

// watch looks at the workers with every tick while there are connections.
func (s *Server[S]) watch() {
	now := uint32(s.wheel.Now())
	var stuck []time.Duration
	defer func() {
		for _, d := range stuck { // without the lock
			s.log(slog.LevelWarn, "handler does not return", "for", d)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.n == 0 {
		return
	}
	for w := range s.workers {
		cur := w.cursor.Load()
		waited := now - since(cur)
		if cur&idle != 0 || waited < patience {
			w.logged = false
			continue
		}
		if cur&replaced == 0 && len(s.workers) < s.atWork+maxStuck {
			s.replace(w, cur)
		}
		if d := time.Duration(waited) * tick; d >= s.stuckAfter() && !w.logged {
			w.logged = true
			s.counts.stuck.Add(1)
			stuck = append(stuck, d)
		}
	}
	s.wheel.Set(s.watcher, 0)
}

// replace has another worker go on with what one has dequeued and not begun. The one that was replaced
// leaves when its handler returns. The server's lock is held.
func (s *Server[S]) replace(w *worker[S], cur uint64) {
	if cur&replaced != 0 || !w.cursor.CompareAndSwap(cur, cur|replaced) {
		return
	}
	n, next := position(cur)
	other := &worker[S]{server: s, port: w.port}
	k := copy(other.ready[:], w.ready[next:n])
	clear(w.ready[next:n])
	other.at = cursor(s.wheel.Now(), k, 0)
	other.cursor.Store(other.at)
	s.addWorker(other)
}

// expired is called when a connection's timer fires: some time-out may be over.
func (s *Server[S]) expired(c *Conn[S]) {
	if c == s.watcher {
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
		ticks := s.wheel.Ticks(limit) + 1 // the first one may have been nearly over
		if waited >= ticks {
			return false
		}
		if d := time.Duration(ticks-waited) * tick; next == 0 || d < next {
			next = d
		}
		return true
	}
	if word&wOut != 0 {
		limit := s.WriteTimeout
		if word&wClosing != 0 {
			limit = s.lingerTime()
		}
		if limit > 0 && !left(limit, uint32(c.extra.since)) {
			s.counts.slow.Add(1)
			c.failLocked(ErrSlow, wAborting)
			return
		}
	}
	if limit := c.idleLimit(); limit > 0 && word&wClosing == 0 {
		from := c.active.Load()
		if word&(wOwned|wOut|wPaused) != 0 {
			from = uint32(s.wheel.Now()) // it is at work
			c.touch(from)
		}
		if !left(limit, from) {
			s.counts.idle.Add(1)
			c.failLocked(ErrIdle, wAborting)
			return
		}
	}
	if next > 0 {
		s.wheel.Set(c, next-tick) // Set adds one
	}
}

// idleLimit is the connection's, or the server's. The lock is held.
func (c *Conn[S]) idleLimit() time.Duration {
	if x := c.extra; x != nil && x.idle != 0 {
		return x.idle
	}
	return c.server().IdleTimeout
}

// SetIdleTimeout replaces Server.IdleTimeout for this connection, from now on; 0 is never.
func (c *Conn[S]) SetIdleTimeout(d time.Duration) {
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
		s.wheel.Set(c, d) // if it is for something else, that is looked at then
	}
	c.more().idle = d
}

func (s *Server[S]) lingerTime() time.Duration {
	if s.WriteTimeout > 0 {
		return s.WriteTimeout
	}
	return lingerTime
}

func (s *Server[S]) stuckAfter() time.Duration {
	if s.StuckAfter > 0 {
		return s.StuckAfter
	}
	return defaultStuck
}
