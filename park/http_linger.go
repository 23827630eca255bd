package park

import (
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/wheel"
)

// A lingering is how a session lingers. Its Read waits like any other, and the wheel makes it fail when it has
// waited for long enough. A deadline of its own would be a timer that is set and stopped with each request.
type lingering struct {
	timer wheel.Timer[*session]
	armed bool // of the goroutine that serves the session

	mu      sync.Mutex
	waiting bool
	roused  bool   // the read deadline was made to pass
	over    bool   // the session is
	since   uint64 // tick
}

// newLinger makes a listener's wheel, or nil for a server that does not linger.
func newLinger(d time.Duration) *wheel.Wheel[*session] {
	if d <= 0 {
		return nil
	}
	tick := min(max(d/4, time.Millisecond), tick)
	var w *wheel.Wheel[*session]
	w = wheel.New(tick, func(s *session) *wheel.Timer[*session] { return &s.timer }, func(s *session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.over {
			return
		}
		left := d
		if s.waiting {
			if left -= time.Duration(w.Now()-s.since) * tick; left <= 0 {
				s.roused = true
				s.link.rouse()
				return
			}
		}
		w.Set(s, left)
	})
	return w
}

// rouse ends a Read that waits, on the wheel's goroutine, which a panic of the connection must not end.
func (l *link) rouse() {
	defer l.recovered()
	l.conn.SetReadDeadline(longAgo)
}

// settle begins to wait.
func (s *session) settle() {
	w := s.link.in.linger
	s.mu.Lock()
	s.waiting, s.roused, s.since = true, false, w.Now()
	s.mu.Unlock()
	if !s.armed {
		s.armed = true
		w.Set(s, s.link.in.server.linger())
	}
}

// stir ends it. It reports whether the deadline was made to pass, which happens no more.
func (s *session) stir() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if s.roused {
		s.armed = false
	}
	return s.roused
}

// leave ends it for good.
func (s *session) leave() {
	if !s.armed {
		return
	}
	s.mu.Lock()
	s.over = true // it may be firing
	s.mu.Unlock()
	s.link.in.linger.Stop(s)
}
