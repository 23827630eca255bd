package conn

import (
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// rates are used with the connection's lock held.
type rates struct{ in, out flow }

// A flow is one direction of a connection with a Rate.
type flow struct {
	rate   serving.Rate  // its bucket is filled with each tick of the wheel; no limit if it is zero
	bucket engine.Bucket // counts bytes, with the ticks as the clock
	bit    uint32        // wNoIn or wNoOut: nothing may be moved
	full   bool          // the bit is set because of the rate
}

const ticksPerSecond = int64(time.Second / engine.Tick)

// flowOf returns a flow with a Rate, whose burst is at least what it allows in two ticks.
func flowOf(r serving.Rate, bit uint32) flow {
	r.Burst = int(max(engine.Burst(r), int64(r.PerSecond)/10))
	return flow{rate: r, bit: bit}
}

// some returns the number of bytes that a flow waits for, so that they are not moved one by one.
func (f *flow) some() int64 {
	return max(min(engine.Burst(f.rate), int64(f.rate.PerSecond)/10), 1)
}

// wait returns the ticks until some bytes may be moved.
func (f *flow) wait() time.Duration {
	return time.Duration(f.bucket.Wait(f.rate, f.some(), ticksPerSecond))
}

// allow returns how many of n bytes may be moved now. If there are none, it sets the flow's bit,
// which the wheel clears.
func (c *Conn) allow(f *flow, n int) int {
	if !engine.Limits(f.rate) || c.word.Load()&wDead != 0 {
		return n
	}
	wheel := c.shared().Wheel
	k := f.bucket.Available(f.rate, int64(wheel.Now()), ticksPerSecond)
	if k < 1 && n > 0 {
		f.full = true
		c.word.Or(f.bit)
		wheel.Hasten(c, (f.wait()-1)*engine.Tick)
	}
	return int(max(min(k, int64(n)), 0))
}

// took notes that bytes were moved.
func (f *flow) took(n int) {
	if engine.Limits(f.rate) && n > 0 {
		f.bucket.Take(int64(n), ticksPerSecond)
	}
}

// ratesExpired ends the waits for a Rate that are over, and returns the time until the next end, or
// 0. The lock is held.
func (c *Conn) ratesExpired(word uint32) (next time.Duration) {
	over, now := uint32(0), int64(c.shared().Wheel.Now())
	for _, f := range []*flow{&c.extra.rates.in, &c.extra.rates.out} {
		switch {
		case word&f.bit == 0 || !f.full:
		case f.bucket.Available(f.rate, now, ticksPerSecond) >= f.some():
			f.full = false
			over |= f.bit
		default:
			if d := f.wait() * engine.Tick; next == 0 || d < next {
				next = d
			}
		}
	}
	if over != 0 && c.word.And(^over)&wOwned == 0 {
		c.wake()
	}
	return next
}
