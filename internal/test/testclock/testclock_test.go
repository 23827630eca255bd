package testclock

import (
	"slices"
	"testing"
	"time"
)

// Functions are called in the order of their due times, at those times, also those that a function
// starts.
func TestAdvance(t *testing.T) {
	c := New()
	began := c.Now()
	var got []time.Duration
	note := func() { got = append(got, c.Since(began)) }
	c.AfterFunc(3*time.Second, note)
	c.AfterFunc(time.Second, func() {
		note()
		c.AfterFunc(time.Second, note)
		c.AfterFunc(time.Hour, note)
	})
	stopped := c.AfterFunc(time.Second, note)
	later := c.AfterFunc(0, note)
	if !stopped.Stop() || stopped.Stop() || !later.Reset(4*time.Second) {
		t.Error("Stop or Reset misreports whether the timer was armed")
	}
	c.Advance(4 * time.Second)
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("called after %v, want %v", got, want)
	}
	if c.Timers() != 1 || c.Since(began) != 4*time.Second {
		t.Errorf("%d timers at %v", c.Timers(), c.Since(began))
	}
}
