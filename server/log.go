package server

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// A journal is the log of a server, and its label in profiles.
type journal struct {
	logger *slog.Logger
	labels context.Context // of package pprof; nil if the server has no name
	panics atomic.Uint64   // for Stats

	// Lines that peers can cause, and failures of the system.
	refused, rejected, functions, datagrams, waits quota
}

// open prepares the journal. A nil logger is slog.Default().
func (j *journal) open(logger *slog.Logger, name string) {
	if logger == nil {
		logger = slog.Default()
	}
	if name != "" {
		logger = logger.With("name", name)
		j.labels = pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name))
	}
	j.logger = logger
}

// close logs the summaries of the quotas.
func (j *journal) close() {
	for _, q := range []*quota{&j.refused, &j.rejected, &j.functions, &j.datagrams, &j.waits} {
		q.end()
	}
}

func (j *journal) log(level slog.Level, msg string, args ...any) {
	j.logger.Log(context.Background(), level, msg, args...)
}

// logLimited is log, limited by a quota.
func (j *journal) logLimited(q *quota, level slog.Level, msg string, args ...any) {
	if !j.logger.Enabled(context.Background(), level) {
		return
	}
	if q.allow(func(n int) { j.log(level, msg, "suppressed", n) }) {
		j.log(level, msg, args...)
	}
}

// panicked counts and logs a panic, and returns it as an error. It is called by the goroutine that
// has panicked, so that the stack shows where. A nil value means that the goroutine has ended by
// runtime.Goexit, because recover returns another value for panic(nil). q may be nil.
func (j *journal) panicked(q *quota, msg string, value any, remote net.Addr) *PanicError {
	if value == nil {
		value = "runtime.Goexit was called"
	}
	j.panics.Add(1)
	e := &PanicError{Value: value, Stack: debug.Stack()}
	args := []any{"remote", nameOfPeer(remote), "panic", value, "stack", string(e.Stack)}
	if q != nil {
		j.logLimited(q, slog.LevelError, msg, args...)
	} else {
		j.log(slog.LevelError, msg, args...)
	}
	return e
}

// guard calls a function of the user that must not end the goroutine by a panic.
func (j *journal) guard(msg string, f func() error) {
	defer func() {
		if v := recover(); v != nil {
			j.panicked(nil, msg, v, nil)
		}
	}()
	f()
}

// label gives the calling goroutine the server's label in profiles, if the server has a name.
func (j *journal) label() {
	if j.labels != nil {
		pprof.SetGoroutineLabels(j.labels)
	}
}

// nameOfPeer returns an address for the log. It is nil if the peer reset the connection before the
// server asked the system for the address, or if no peer is concerned.
func nameOfPeer(a net.Addr) string {
	if a == nil {
		return "unknown"
	}
	return a.String()
}

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
