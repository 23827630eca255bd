package parking

import (
	"context"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/metrics"
)

type counters struct {
	parked  atomic.Int64
	running atomic.Int64
	parks   atomic.Uint64
	atOnce  atomic.Uint64
	expired atomic.Uint64

	unparkable atomic.Uint64
	callTime   metrics.Recorder
}

// Counts are the counters of a lot, as in park.Stats.
type Counts struct {
	Parked, Waiting, Running, Workers          int
	Panics, Parks, AtOnce, Expired, Unparkable uint64
	CallTime                                   metrics.Histogram
}

// Counts returns the current counters.
func (l *Lot) Counts() Counts {
	c := &l.workers
	c.mu.Lock()
	workers, backlog := c.waiting+c.running, len(c.backlog)
	c.mu.Unlock()
	s := Counts{
		Parked:  int(l.stats.parked.Load()),
		Waiting: backlog,
		Running: int(l.stats.running.Load()),
		Workers: workers,
		Panics:  l.Log.Panics(),
		Parks:   l.stats.parks.Load(),
		AtOnce:  l.stats.atOnce.Load(),
		Expired: l.stats.expired.Load(),

		Unparkable: l.stats.unparkable.Load(),
	}
	l.stats.callTime.AddTo(&s.CallTime)
	return s
}

// CountRunning counts functions that run without being called by the lot.
func (l *Lot) CountRunning(n int64) { l.stats.running.Add(n) }

// RecordCall records how long the call of a handler has taken, for Counts.CallTime.
func (l *Lot) RecordCall(d time.Duration) { l.stats.callTime.Record(d) }

// label labels the calling goroutine in profiles.
func (l *Lot) label() {
	if name := l.config.Name; name != "" {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name)))
	}
}
