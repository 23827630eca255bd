package server

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// lateTicks is the number of ticks after which a handler's worker is replaced.
const lateTicks = 2

// An activity says since when a worker is in the call of a handler. The worker writes it, and the watchdog reads it
// once a tick.
type activity struct {
	mu       sync.Mutex // contended by the watchdog alone
	busy     bool
	since    uint32 // a tick, where busy
	replaced bool   // another worker was started in the place of this one, which ends when the call returns
	logged   bool   // the watchdog has logged the call
	alone    bool   // the port has no other worker, except replaced ones

	// Only if each shard has one worker:
	started  time.Duration // when the batch was dequeued, by the server's clock; where busy
	workload               // of the batches that are over
}

// begin notes that a worker is about to call a handler. The lock is held.
func (a *activity) begin(now uint64) { a.busy, a.since = true, uint32(now) }

// A watchdog is one inspection of the workers of a server.
type watchdog struct {
	now   uint32
	after time.Duration   // the time after which a call is stuck; 0 means never
	found []time.Duration // ages of the calls that are stuck and were not stuck at the last inspection
}

// late reports whether a worker is to be replaced, and notes whether it is stuck. The worker's lock is held.
func (d *watchdog) late(a *activity) bool {
	if d.ticks(a) < lateTicks {
		a.logged = false
		return false
	}
	if ran := time.Duration(d.ticks(a)) * tick; d.after > 0 && ran >= d.after && !a.logged {
		a.logged = true
		d.found = append(d.found, ran)
	}
	return !a.replaced
}

// ran reports whether a worker is in a call, and how long that has run, to a tick.
func (d *watchdog) ran(a *activity) (busy bool, ran time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.busy, time.Duration(d.ticks(a)) * tick
}

// ticks returns the age of a worker's present call: 0 if it began after the watchdog had read the clock. The worker's
// lock is held.
func (d *watchdog) ticks(a *activity) uint32 {
	if !a.busy {
		return 0
	}
	return uint32(max(int32(d.now-a.since), 0))
}

// log logs the calls found. No lock is held.
func (d *watchdog) log(log func(level slog.Level, msg string, args ...any)) {
	for _, ran := range d.found {
		log(slog.LevelWarn, "handler does not return", "for", ran)
	}
}

// watch is the watchdog. The wheel calls it with every tick while there are connections.
func (s *server) watch() {
	d := watchdog{now: uint32(s.wheel.Now()), after: s.StuckAfter}
	defer d.log(s.log)
	var conns []*conn
	defer func() { // what a late handler has written does not wait for its return
		for _, c := range conns {
			if c.word.Load()&wGather != 0 {
				c.mu.Lock()
				c.sendHeld()
				c.mu.Unlock()
			}
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.table) == 0 {
		return
	}
	s.balance()
	late := false
	for w := range s.workers {
		w.mu.Lock()
		if d.late(&w.activity) {
			late = true
			if len(s.workers) < s.MaxRunning {
				s.addWorker(int(w.shard), w)
			}
		}
		w.mu.Unlock()
	}
	if late {
		conns = slices.Clone(s.table)
	}
	s.counts.stuck.Add(uint64(len(d.found)))
	s.wheel.Set(s.ticker, 0)
}
