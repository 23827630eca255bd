// Package wheel is one timer for many connections: a hashed wheel whose entries lie in what they are for,
// and a coarse clock that is read without a system call.
//
// Time here is counted in ticks. A tick lasts at least its duration, and longer where the machine is late,
// so that nothing fires early, nor for a stall of the program.
package wheel

import (
	"sync"
	"sync/atomic"
	"time"
)

const slots = 256

// A Timer is part of what it is for. The zero value is stopped. Its fields are the wheel's.
type Timer[P comparable] struct {
	next, prev P
	due        uint64 // tick; 0 is stopped
}

// A Wheel holds the timers of things of one kind, P, which is a pointer. All methods may be called at once
// by any number of goroutines, also from fire.
//
// Its goroutine exists while a timer is armed, and up to a tick longer.
type Wheel[P comparable] struct {
	tick  time.Duration
	timer func(P) *Timer[P]
	fire  func(P)

	now atomic.Uint64

	mu      sync.Mutex
	heads   [slots]P
	armed   int
	running bool
	closed  chan struct{}
	run     func() // starts the goroutine
}

// New makes a wheel. timer finds the Timer in a thing. fire is called by the wheel's goroutine, one thing
// after the other and without a lock; it must not block.
func New[P comparable](tick time.Duration, timer func(P) *Timer[P], fire func(P)) *Wheel[P] {
	w := &Wheel[P]{tick: tick, timer: timer, fire: fire, closed: make(chan struct{})}
	w.now.Store(1)
	w.run = func() { go w.turn() }
	return w
}

// Now is the coarse clock, in ticks from 1 on. It stands still while nothing is armed.
func (w *Wheel[P]) Now() uint64 { return w.now.Load() }

// Ticks is a duration in ticks, rounded up.
func (w *Wheel[P]) Ticks(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/w.tick) + 1
}

// Set arms a timer to fire once, after d and not before, or moves it. It reports whether it was armed. After
// Close it does nothing.
//
// A deadline that moves with every request is best left alone: note [Wheel.Now] with each request, and set
// the timer again, from fire, for what is left.
func (w *Wheel[P]) Set(p P, d time.Duration) (was bool) { return w.set(p, d, true) }

// Hasten is Set, but leaves a timer alone that is to fire before. It is for a timer with several deadlines, where
// fire looks which of them has come.
func (w *Wheel[P]) Hasten(p P, d time.Duration) (was bool) { return w.set(p, d, false) }

func (w *Wheel[P]) set(p P, d time.Duration, later bool) (was bool) {
	ticks := w.Ticks(d) + 1 // the present tick is partly over
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.now.Load() + ticks
	t := w.timer(p)
	was = t.due != 0
	switch {
	case t.due == due, was && t.due < due && !later, w.isClosed():
		return was
	case was:
		w.unlink(t)
	}
	w.link(p, t, due)
	if !w.running {
		w.running = true
		w.run()
	}
	return was
}

// Stop disarms a timer, and reports whether it was armed. One that was not may be firing.
func (w *Wheel[P]) Stop(p P) (was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.timer(p)
	if t.due == 0 {
		return false
	}
	w.unlink(t)
	return true
}

// Close disarms everything. It does not wait for a fire that is under way, after which there is no other.
func (w *Wheel[P]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed() {
		return
	}
	close(w.closed)
	var none P
	for i := range w.heads {
		for w.heads[i] != none {
			w.unlink(w.timer(w.heads[i]))
		}
	}
}

func (w *Wheel[P]) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

func (w *Wheel[P]) link(p P, t *Timer[P], due uint64) {
	var none P
	head := &w.heads[due%slots]
	t.due, t.next, t.prev = due, *head, none
	if t.next != none {
		w.timer(t.next).prev = p
	}
	*head = p
	w.armed++
}

func (w *Wheel[P]) unlink(t *Timer[P]) {
	var none P
	if t.prev != none {
		w.timer(t.prev).next = t.next
	} else {
		w.heads[t.due%slots] = t.next
	}
	if t.next != none {
		w.timer(t.next).prev = t.prev
	}
	*t = Timer[P]{}
	w.armed--
}

// turn is the goroutine.
func (w *Wheel[P]) turn() {
	clock := time.NewTimer(w.tick)
	defer clock.Stop()
	var due []P
	for {
		select {
		case <-clock.C:
		case <-w.closed:
			return
		}
		var on bool
		if due, on = w.step(due); !on {
			return
		}
		clock.Reset(w.tick)
	}
}

// step goes on by a tick and fires what is due then. on is false where the goroutine must end.
func (w *Wheel[P]) step(due []P) (_ []P, on bool) {
	w.mu.Lock()
	if w.armed == 0 {
		w.running = false
		w.mu.Unlock()
		return due, false
	}
	now := w.now.Add(1)
	var none P
	for p := w.heads[now%slots]; p != none; {
		t := w.timer(p)
		next := t.next
		if t.due == now { // and not in a later round
			w.unlink(t)
			due = append(due, p)
		}
		p = next
	}
	w.mu.Unlock()
	for _, p := range due {
		if w.isClosed() {
			break
		}
		w.fire(p)
	}
	clear(due)
	return due[:0], true
}
