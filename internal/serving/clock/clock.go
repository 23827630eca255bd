// Package clock is how packages with timeouts read the time and start timers, so that their tests
// can advance the time by hand.
package clock

import (
	"sync/atomic"
	"time"
)

// A Clock has the time and timers. Its methods may be called concurrently.
//
// Deadlines of connections are kept by the kernel or by package net, so they follow the system's
// time whatever the clock is.
type Clock interface {
	// Now returns the time, with a monotonic reading.
	Now() time.Time
	// Since returns the time that has passed since t.
	Since(t time.Time) time.Duration
	// AfterFunc calls f once after d, like [time.AfterFunc].
	AfterFunc(d time.Duration, f func()) Timer
}

// A Timer is started by [Clock.AfterFunc]. Its methods are those of a [time.Timer].
type Timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// current is a test's clock, or nil.
var current atomic.Pointer[Clock]

// Current returns the clock to use: the system's, which is package time's, or that of a test. What has
// a wheel or several timers calls it once, when it is made.
func Current() Clock {
	if c := current.Load(); c != nil {
		return *c
	}
	return system{}
}

// Set makes c the current clock until the returned function is called. Only tests call it.
func Set(c Clock) (reset func()) {
	old := current.Swap(&c)
	return func() { current.Store(old) }
}

type system struct{}

func (system) Now() time.Time                  { return time.Now() }
func (system) Since(t time.Time) time.Duration { return time.Since(t) }
func (system) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(d, f)
}
