// Package wheel implements a hashed timer wheel for many connections, and a coarse clock that is read without a
// system call. The timers are embedded in the values that they belong to.
//
// Time is counted in ticks. A tick lasts at least its nominal duration, and longer if the machine is late. So no
// timer fires early, and a stall of the program does not make timers fire.
package wheel

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

const slotCount = 256

// A Timer is embedded in the value that it belongs to. The zero value is a stopped timer. Its fields are owned by
// the wheel.
type Timer[P comparable] struct {
	next, prev P
	due        uint64 // the tick in which it fires; 0 means stopped
}

// A Wheel holds the timers of values of a pointer type P. All methods may be called concurrently,
// and from fire. While a timer is armed, the wheel has one timer of its clock.
type Wheel[P comparable] struct {
	clock clock.Clock
	tick  time.Duration
	timer func(P) *Timer[P]
	fire  func(P)

	now    atomic.Uint64
	closed atomic.Bool

	mu      sync.Mutex
	heads   [slotCount]P
	armed   int
	running bool        // ticker runs, or step does
	ticker  clock.Timer // calls step
	due     []P         // scratch memory of step
}

// New returns a new wheel. timer returns the Timer of a value. fire is called for each value whose
// timer fires, one at a time, without a lock, and in a goroutine of the clock. It must not block.
func New[P comparable](c clock.Clock, tick time.Duration, timer func(P) *Timer[P], fire func(P)) *Wheel[P] {
	w := &Wheel[P]{clock: c, tick: tick, timer: timer, fire: fire}
	w.now.Store(1)
	return w
}

// Now returns the coarse time in ticks, beginning with 1. The clock stops while no timer is armed.
func (w *Wheel[P]) Now() uint64 { return w.now.Load() }

// Ticks converts a duration to ticks, rounded up.
func (w *Wheel[P]) Ticks(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/w.tick) + 1
}

// Duration converts ticks to a duration. If that is longer than a duration can be, it is as many
// ticks as one can be.
func (w *Wheel[P]) Duration(ticks uint64) time.Duration {
	return time.Duration(min(ticks, math.MaxInt64/uint64(w.tick))) * w.tick
}

// Set sets the timer of p to fire once, not before d has passed. If the timer is armed, Set moves it. Set reports
// whether the timer was armed. After Close it does nothing.
//
// A deadline that moves with every request should not be set each time. Record [Wheel.Now] with each request
// instead, and let fire set the timer again for the remaining time.
func (w *Wheel[P]) Set(p P, d time.Duration) (was bool) { return w.set(p, d, true) }

// Hasten is like [Wheel.Set], but does not move a timer to a later time. It is for a timer with several deadlines,
// for which fire finds out which deadline has passed.
func (w *Wheel[P]) Hasten(p P, d time.Duration) (was bool) { return w.set(p, d, false) }

func (w *Wheel[P]) set(p P, d time.Duration, later bool) (was bool) {
	ticks := w.Ticks(d) + 1 // the current tick has already begun
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.now.Load() + ticks
	t := w.timer(p)
	was = t.due != 0
	switch {
	case t.due == due, was && t.due < due && !later, w.closed.Load():
		return was
	case was:
		w.unlink(t)
	}
	w.link(p, t, due)
	if !w.running {
		w.running = true
		if w.ticker == nil {
			w.ticker = w.clock.AfterFunc(w.tick, w.step)
		} else {
			w.ticker.Reset(w.tick)
		}
	}
	return was
}

// Stop stops the timer of p and reports whether it was armed. If it was not, it may be firing concurrently.
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

// Close stops all timers. It does not wait for a call of fire that is in progress; no other call follows.
func (w *Wheel[P]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Swap(true) {
		return
	}
	if w.ticker != nil && w.ticker.Stop() {
		w.running = false
	}
	var none P
	for i := range w.heads {
		for w.heads[i] != none {
			w.unlink(w.timer(w.heads[i]))
		}
	}
}

func (w *Wheel[P]) link(p P, t *Timer[P], due uint64) {
	var none P
	head := &w.heads[due%slotCount]
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
		w.heads[t.due%slotCount] = t.next
	}
	if t.next != none {
		w.timer(t.next).prev = t.prev
	}
	*t = Timer[P]{}
	w.armed--
}

// step is what the ticker calls, at the end of each tick.
func (w *Wheel[P]) step() {
	if w.advance() {
		w.ticker.Reset(w.tick)
	}
}

// advance advances the clock by one tick and fires the timers that are due. It reports whether the
// ticker should go on.
func (w *Wheel[P]) advance() bool {
	w.mu.Lock()
	if w.armed == 0 {
		w.running, w.due = false, nil
		w.mu.Unlock()
		return false
	}
	now := w.now.Add(1)
	due := w.due[:0]
	var none P
	for p := w.heads[now%slotCount]; p != none; {
		t := w.timer(p)
		next := t.next
		if t.due == now { // not in a later revolution of the wheel
			w.unlink(t)
			due = append(due, p)
		}
		p = next
	}
	w.due = due
	w.mu.Unlock()
	for _, p := range due {
		if w.closed.Load() {
			break
		}
		w.fire(p)
	}
	clear(due)
	return true
}
