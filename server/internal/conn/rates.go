package conn

import (
	"time"

	"github.com/socknotify/socknotify/server/internal/engine"
)

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
