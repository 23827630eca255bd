package engine

import (
	"log/slog"
	"sync"
	"time"
)

// lateTicks is the number of ticks after which a handler's worker is replaced.
const lateTicks = 2

// An Activity says since when a worker is in the call of a handler. The worker writes it, and the
// watchdog reads it once a tick.
type Activity struct {
	Mu       sync.Mutex // contended by the watchdog alone
	Busy     bool
	Since    uint32 // a tick, where Busy
	Replaced bool   // another worker has its place; it ends when the call returns
	logged   bool   // the watchdog has logged the call
}

// Begin notes that a worker is about to call a handler. The lock is held.
func (a *Activity) Begin(now uint64) { a.Busy, a.Since = true, uint32(now) }

// A Watchdog is one inspection of the workers of a server.
type Watchdog struct {
	Now   uint32
	After time.Duration   // the time after which a call is stuck; 0 means never
	found []time.Duration // ages of the calls that are stuck and were not stuck at the last inspection
}

// Late reports whether a worker is to be replaced, and notes whether it is stuck. The worker's lock
// is held.
func (d *Watchdog) Late(a *Activity) bool {
	ran := d.Ran(a)
	if ran < lateTicks*Tick {
		a.logged = false
		return false
	}
	if d.After > 0 && ran >= d.After && !a.logged {
		a.logged = true
		d.found = append(d.found, ran)
	}
	return !a.Replaced
}

// Ran returns how long a worker's present call has run, to a tick: 0 if there is none, or if it
// began after the watchdog had read the clock. The worker's lock is held.
func (d *Watchdog) Ran(a *Activity) time.Duration {
	if !a.Busy {
		return 0
	}
	return time.Duration(max(int32(d.Now-a.Since), 0)) * Tick
}

// Stuck returns the number of calls that were found to be stuck.
func (d *Watchdog) Stuck() int { return len(d.found) }

// Log logs these calls. No lock is held.
func (d *Watchdog) Log(j *Journal) {
	for _, ran := range d.found {
		j.Log(slog.LevelWarn, "handler does not return", "age", ran)
	}
}
