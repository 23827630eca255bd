package server

import (
	"log/slog"
	"time"
)

const (
	// patience is how many ticks a handler may run until another worker takes its place.
	patience = 2
	// maxStuck is how many workers there are at most beyond those asked for.
	maxStuck = 512
)

// A patrol is one look at the workers of a server, each of which has a cursor that says whether it is idle, and
// if not, since when it has been at one thing.
type patrol struct {
	now   uint32
	after time.Duration   // which is stuck
	found []time.Duration // how long those are at it that were not before
}

// sees reports whether another worker is to take one's place, and notes whether that one is stuck.
func (p *patrol) sees(cur uint64, logged *bool) (late bool) {
	if cur&idle != 0 || p.ticks(cur) < patience {
		*logged = false
		return false
	}
	if d := p.waited(cur); d >= p.after && !*logged {
		*logged = true
		p.found = append(p.found, d)
	}
	return cur&replaced == 0
}

// waited is how long a worker has been at one thing, to a tick.
func (p *patrol) waited(cur uint64) time.Duration {
	if cur&idle != 0 {
		return 0
	}
	return time.Duration(p.ticks(cur)) * tick
}

// ticks is how long ago a cursor was set: not at all where that was after the patrol had read the clock.
func (p *patrol) ticks(cur uint64) uint32 { return uint32(max(int32(p.now-since(cur)), 0)) }

// tell is to be called without a lock.
func (p *patrol) tell(log func(level slog.Level, msg string, args ...any)) {
	for _, d := range p.found {
		log(slog.LevelWarn, "handler does not return", "for", d)
	}
}

// stuckAfter is a field's value, or the default.
func stuckAfter(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return defaultStuck
}
