package park

import (
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/internal/serving/wheel"
)

// A lingering limits the time that a session's Read waits for the next request. The timer wheel interrupts the Read by
// setting a read deadline in the past. A real deadline would cost a timer that is started and stopped for each request.
// The wheel's timer stays set across requests, and is set again when it fires too early.
type lingering struct {
	timer wheel.Timer[*session]
	armed bool // the timer is set; used only by the goroutine that serves the session

	mu          sync.Mutex
	waiting     bool
	interrupted bool   // the read deadline was set to the past
	over        bool   // the session has ended
	since       uint64 // the tick in which waiting began
}

// newLinger returns a timer wheel for the sessions of a listener, or nil if sessions do not linger.
func newLinger(d time.Duration) *wheel.Wheel[*session] {
	if d <= 0 {
		return nil
	}
	tick := min(max(d/4, time.Millisecond), parking.Tick)
	var w *wheel.Wheel[*session]
	w = wheel.New(clock.Current(), tick, func(s *session) *wheel.Timer[*session] { return &s.timer }, func(s *session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.over {
			return
		}
		left := d
		if s.waiting {
			if left -= time.Duration(w.Now()-s.since) * tick; left <= 0 {
				s.interrupted = true
				s.hc.interrupt()
				return
			}
		}
		w.Set(s, left)
	})
	return w
}

// lingerTime returns how long sessions linger, or a negative time if they do not.
func (l *listener) lingerTime() time.Duration {
	return serving.Or(l.server.Linger, serving.DefaultLinger)
}

// interrupt interrupts a waiting Read. It is called by the wheel's goroutine, so it recovers from a panic of the
// connection's method.
func (hc *httpConn) interrupt() {
	hc.try(func() { hc.conn.SetReadDeadline(unwrap.Past) })
}

// startWaiting is called before a Read that waits for a request.
func (s *session) startWaiting() {
	w := s.hc.in.linger
	s.mu.Lock()
	s.waiting, s.interrupted, s.since = true, false, w.Now()
	s.mu.Unlock()
	if !s.armed {
		s.armed = true
		w.Set(s, s.hc.in.lingerTime())
	}
}

// stopWaiting is called after that Read. It reports whether the Read was interrupted. The Read deadline is not touched
// after stopWaiting has returned.
func (s *session) stopWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if s.interrupted {
		s.armed = false
	}
	return s.interrupted
}

// stopLingering stops the timer for good.
func (s *session) stopLingering() {
	if !s.armed {
		return
	}
	s.mu.Lock()
	s.over = true // the timer may be firing concurrently
	s.mu.Unlock()
	s.hc.in.linger.Stop(s)
}
