package serving

import (
	"sync"
	"sync/atomic"
)

// An Ending is how something that has members ends: it has begun to end, for which goroutines wait,
// and it is over when no member is left. The owner counts the members under a lock of its own, and
// holds that lock when it calls Begin and Left. The zero value has not begun. An Ending must not be
// copied.
type Ending struct {
	started     atomic.Bool
	begun, over signal
}

// Begin begins the end, with so many members left.
func (e *Ending) Begin(left int) {
	if !e.started.Swap(true) {
		e.begun.give()
	}
	e.Left(left)
}

// Left says how many members are left, when one of them has gone. The end is over if it has begun
// and none is left.
func (e *Ending) Left(members int) {
	if members == 0 && e.HasBegun() {
		e.over.give()
	}
}

// HasBegun reports whether Begin was called. It needs no lock.
func (e *Ending) HasBegun() bool { return e.started.Load() }

// Begun returns a channel that is closed by Begin. It needs no lock.
func (e *Ending) Begun() <-chan struct{} { return e.begun.channel() }

// Over returns a channel that is closed when the end is over. It needs no lock.
func (e *Ending) Over() <-chan struct{} { return e.over.channel() }

// A signal is a channel that is closed once. It is made when it is first needed.
type signal struct {
	mu    sync.Mutex
	given bool
	c     chan struct{}
}

func (s *signal) channel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
		if s.given {
			close(s.c)
		}
	}
	return s.c
}

func (s *signal) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.given && s.c != nil {
		close(s.c)
	}
	s.given = true
}
