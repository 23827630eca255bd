package park

import (
	"context"
	"runtime/pprof"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/durations"
	"github.com/socknotify/socknotify/metrics"
)

// Stats holds counters of a lot.
type Stats struct {
	Parked  int    // connections that are parked, or ready and queued
	Queued  int    // the part of Parked that is ready, and waits because Config.MaxRunning functions are running
	Running int    // functions that are running
	Workers int    // goroutines that run functions or wait for work
	Parks   uint64 // calls of Park so far
	AtOnce  uint64 // the part of Parks for which the function ran immediately because bytes were buffered
	Expired uint64 // the part of Parks that ended by the idle timeout
	// Unparkable counts calls of Park that failed with ErrUnparkable, and, of an HTTPServer, a Server or a listener, the
	// connections that are served without being parked for this reason.
	Unparkable uint64
	// CallTime holds how long functions that returned took, if Config.TimeCalls is set, and of a Server, calls of Handler, if
	// Server.TimeCalls is.
	CallTime metrics.Histogram
}

type counters struct {
	parked  atomic.Int64
	running atomic.Int64
	parks   atomic.Uint64
	atOnce  atomic.Uint64
	expired atomic.Uint64

	unparkable atomic.Uint64
	callTime   durations.Recorder
}

// Stats returns the current counters.
func (l *Lot) Stats() Stats {
	c := &l.workers
	c.mu.Lock()
	workers, backlog := c.waiting+c.running, len(c.backlog)
	c.mu.Unlock()
	s := Stats{
		Parked:  int(l.stats.parked.Load()),
		Queued:  backlog,
		Running: int(l.stats.running.Load()),
		Workers: workers,
		Parks:   l.stats.parks.Load(),
		AtOnce:  l.stats.atOnce.Load(),
		Expired: l.stats.expired.Load(),

		Unparkable: l.stats.unparkable.Load(),
	}
	l.stats.callTime.AddTo(&s.CallTime)
	return s
}

// label labels the calling goroutine in profiles.
func (l *Lot) label() {
	if name := l.config.Name; name != "" {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name)))
	}
}

// add adds the counters of another lot.
func (s *Stats) add(o Stats) {
	s.Parked += o.Parked
	s.Queued += o.Queued
	s.Running += o.Running
	s.Workers += o.Workers
	s.Parks += o.Parks
	s.AtOnce += o.AtOnce
	s.Expired += o.Expired
	s.Unparkable += o.Unparkable
	s.CallTime.Add(o.CallTime)
}
