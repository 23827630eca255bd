package server

import (
	"log/slog"
	"sync"
	"time"
)

// A quota bounds how often a message is logged that peers can cause. In each second the first few lines are logged. The
// others are counted, and their number is logged at the end of the second.
type quota struct {
	mu    sync.Mutex
	from  time.Time // begin of the current second
	n     int       // lines in it
	over  int       // lines in it that were not logged
	timer *time.Timer
	flush func()
}

const (
	quotaLines  = 10
	quotaPeriod = time.Second
)

// allow counts a line, and reports whether it may be logged. summary logs the number of lines that were not.
func (q *quota) allow(summary func(n int)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.over == 0 && now.Sub(q.from) >= quotaPeriod {
		q.from, q.n = now, 0
	}
	if q.n++; q.n <= quotaLines {
		return true
	}
	if q.over++; q.over == 1 {
		q.flush = func() { // under the lock, so that nothing is logged after end
			if q.over > 0 {
				summary(q.over)
			}
			q.over, q.n = 0, 0
		}
		q.timer = time.AfterFunc(q.from.Add(quotaPeriod).Sub(now), q.end)
	}
	return false
}

// end ends the current second: it logs the summary, if there is one.
func (q *quota) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flush != nil {
		q.timer.Stop()
		q.flush()
		q.flush = nil
	}
}

// quotas are the quotas of a server.
type quotas struct{ handshakes, preambles, panics, refused quota }

func (q *quotas) end() {
	q.handshakes.end()
	q.preambles.end()
	q.panics.end()
	q.refused.end()
}

// logLimited is log, limited by a quota.
func (s *server) logLimited(q *quota, level slog.Level, msg string, args ...any) {
	if s.Logger != nil && q.allow(func(n int) { s.log(level, msg, "suppressed", n) }) {
		s.log(level, msg, args...)
	}
}
