package server

import (
	"log/slog"
	"sync"
	"time"
)

// A quota bounds how often a message is logged that strangers can cause. In each second the first few lines are
// logged; the others are counted, and the number is logged when the second is over.
type quota struct {
	mu    sync.Mutex
	from  time.Time // when the present second began
	n     int       // lines in it
	over  int       // of these, not logged
	timer *time.Timer
	flush func()
}

const (
	quotaLines  = 10
	quotaPeriod = time.Second
)

// allow counts a line, and reports whether it is to be logged. The function logs how many were not.
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

// end logs what there is to log at the end of a second.
func (q *quota) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flush != nil {
		q.timer.Stop()
		q.flush()
		q.flush = nil
	}
}

// quotas are those of a server.
type quotas struct{ handshakes, panics, refused quota }

func (q *quotas) end() {
	q.handshakes.end()
	q.panics.end()
	q.refused.end()
}

// logLimited is log within a quota.
func (s *server) logLimited(q *quota, level slog.Level, msg string, args ...any) {
	if s.Logger != nil && q.allow(func(n int) { s.log(level, msg, "suppressed", n) }) {
		s.log(level, msg, args...)
	}
}
