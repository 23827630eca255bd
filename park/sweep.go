package park

import (
	"sync"
	"sync/atomic"
	"time"
)

// A sweeper finds connections that somebody closed while they were parked. The kernel forgets a closed
// descriptor and tells nobody, so they are looked at, a part of them each second, and found within as many
// seconds as there are parts.
type sweeper struct {
	mu      sync.Mutex
	timer   *time.Timer
	on      bool
	stopped bool
	turn    int
}

const (
	sweepParts    = 8
	sweepInterval = time.Second
)

// begin has the lot swept from now on.
func (w *sweeper) begin(l *Lot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on || w.stopped {
		return
	}
	w.on = true
	if w.timer == nil {
		w.timer = time.AfterFunc(sweepInterval, l.sweepPart)
	} else {
		w.timer.Reset(sweepInterval)
	}
}

func (w *sweeper) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// sweepPart looks at one part.
func (l *Lot) sweepPart() {
	w := &l.sweep
	w.mu.Lock()
	turn := w.turn
	w.turn = (turn + 1) % sweepParts
	w.mu.Unlock()
	l.spots.some(turn, sweepParts, l.look)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on = l.spots.used.Load() > 0; w.on && !w.stopped {
		w.timer.Reset(sweepInterval)
	}
}

// look gives up the spot of a connection that is closed. If it is parked its function runs.
func (l *Lot) look(place *atomic.Pointer[spot], s *spot) {
	if err := s.raw.Control(func(uintptr) {}); err == nil {
		return
	}
	l.dispatch(s, readable)
	l.spots.put(place, s, nil)
}
