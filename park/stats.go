package park

import "sync/atomic"

// Stats are a lot's counts.
type Stats struct {
	Parked  int    // connections parked, or ready and waiting for their turn
	Running int    // functions that run
	Workers int    // goroutines
	Parks   uint64 // connections parked so far
	AtOnce  uint64 // of them, those that were dispatched at once for bytes already buffered
	Expired uint64 // of them, those whose idle time-out passed
}

type counters struct {
	parked  atomic.Int64
	running atomic.Int64
	parks   atomic.Uint64
	atOnce  atomic.Uint64
	expired atomic.Uint64
}

// Stats reads the counts.
func (l *Lot) Stats() Stats {
	c := &l.crew
	c.mu.Lock()
	workers := c.waiting + c.running
	c.mu.Unlock()
	return Stats{
		Parked:  int(l.stats.parked.Load()),
		Running: int(l.stats.running.Load()),
		Workers: workers,
		Parks:   l.stats.parks.Load(),
		AtOnce:  l.stats.atOnce.Load(),
		Expired: l.stats.expired.Load(),
	}
}
