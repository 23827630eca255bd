// Package testclock is a clock that tests advance by hand.
package testclock

import (
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

// A Clock is a [clock.Clock] whose time passes only in [Clock.Advance].
type Clock struct {
	advancing sync.Mutex // held by Advance, which runs one timer at a time

	mu    sync.Mutex
	now   time.Time
	armed map[*timer]struct{}
}

var _ clock.Clock = (*Clock)(nil)

// New returns a clock that shows the system's time of the call.
func New() *Clock { return &Clock{now: time.Now(), armed: map[*timer]struct{}{}} }

// Install returns a new clock, which is the current one until the test ends. Tests that run in parallel
// must not call it.
func Install(tb testing.TB) *Clock {
	c := New()
	tb.Cleanup(clock.Set(c))
	return c
}

type timer struct {
	clock *Clock
	due   time.Time
	f     func()
}

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &timer{clock: c, f: f}
	t.Reset(d)
	return t
}

func (t *timer) Reset(d time.Duration) bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.armed[t]
	t.due = c.now.Add(max(d, 0))
	c.armed[t] = struct{}{}
	return was
}

func (t *timer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.armed[t]
	delete(c.armed, t)
	return was
}

// Advance lets d pass, and calls the functions of the timers that become due, in the order of their
// due times and in this goroutine. While one is called, the clock shows the time at which it was due.
// A timer that a function starts is called too if it becomes due within d. A function must not call
// Advance.
func (c *Clock) Advance(d time.Duration) {
	c.advancing.Lock()
	defer c.advancing.Unlock()
	end := c.Now().Add(d)
	for {
		c.mu.Lock()
		next := c.next()
		if next == nil || next.due.After(end) {
			c.now = end
			c.mu.Unlock()
			return
		}
		if next.due.After(c.now) {
			c.now = next.due
		}
		delete(c.armed, next)
		c.mu.Unlock()
		next.f()
	}
}

// next returns the armed timer with the earliest due time, or nil. The lock is held.
func (c *Clock) next() *timer {
	var first *timer
	for t := range c.armed {
		if first == nil || t.due.Before(first.due) {
			first = t
		}
	}
	return first
}

// Timers returns how many timers are armed.
func (c *Clock) Timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.armed)
}
