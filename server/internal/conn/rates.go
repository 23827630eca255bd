package conn

import (
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// rates has the buckets of a connection, with the ticks of the wheel as the clock. They are used
// with the connection's lock held.
type rates struct {
	in, out engine.Bucket
	full    bool // wNoOut is set because nothing more may be sent
}

const ticksPerSecond = int64(time.Second / engine.Tick)

// inTicks returns the Rate for bytes, whose buckets are filled with each tick.
func inTicks(r serving.Rate) serving.Rate {
	return serving.Rate{PerSecond: r.PerSecond, Burst: int(max(engine.Burst(r), int64(r.PerSecond)/10))}
}

// some returns the number of bytes that a connection waits for, so that it does not receive or send
// byte by byte.
func some(r serving.Rate) int64 { return max(min(engine.Burst(r), int64(r.PerSecond)/10), 1) }

// allow returns how many of n bytes may be moved now. If there are none, it sets a bit, which the
// wheel clears. The lock is held.
func (c *Conn) allow(b *engine.Bucket, r serving.Rate, bit uint32, n int) int {
	wheel := c.shared().Wheel
	k := b.Available(r, int64(wheel.Now()), ticksPerSecond)
	if k < 1 && n > 0 {
		c.word.Or(bit)
		wheel.Hasten(c, time.Duration(b.Wait(r, some(r), ticksPerSecond)-1)*engine.Tick)
	}
	return int(max(min(k, int64(n)), 0))
}

// allowIn returns how many of n bytes may be received now. The lock is held.
func (c *Conn) allowIn(n int) int {
	r := c.shared().ReadRate
	if !engine.Limits(r) || c.word.Load()&wDead != 0 {
		return n
	}
	return c.allow(&c.extra.rates.in, inTicks(r), wNoIn, n)
}

func (c *Conn) tookIn(n int) {
	if engine.Limits(c.shared().ReadRate) && n > 0 {
		c.extra.rates.in.Take(int64(n), ticksPerSecond)
	}
}

// allowOut is allowIn for bytes to be sent.
func (c *Conn) allowOut(n int) int {
	r := c.shared().WriteRate
	if !engine.Limits(r) || c.word.Load()&wDead != 0 {
		return n
	}
	k := c.allow(&c.extra.rates.out, inTicks(r), wNoOut, n)
	c.extra.rates.full = c.extra.rates.full || k == 0 && n > 0
	return k
}

func (c *Conn) tookOut(n int) {
	if engine.Limits(c.shared().WriteRate) && n > 0 {
		c.extra.rates.out.Take(int64(n), ticksPerSecond)
	}
}

// ratesExpired ends the waits for a Rate that are over, and returns the time until the next end, or
// 0. The lock is held.
func (c *Conn) ratesExpired(word uint32) (next time.Duration) {
	s := c.shared()
	wait := func(b *engine.Bucket, r serving.Rate) (over bool) {
		if b.Available(r, int64(s.Wheel.Now()), ticksPerSecond) >= some(r) {
			return true
		}
		if d := time.Duration(b.Wait(r, some(r), ticksPerSecond)) * engine.Tick; next == 0 || d < next {
			next = d
		}
		return false
	}
	x, over := c.extra.rates, uint32(0)
	if word&wNoIn != 0 && wait(&x.in, inTicks(s.ReadRate)) {
		over |= wNoIn
	}
	if word&wNoOut != 0 && x.full && wait(&x.out, inTicks(s.WriteRate)) {
		x.full = false
		over |= wNoOut
	}
	if over != 0 && c.word.And(^over)&wOwned == 0 {
		c.wake()
	}
	return next
}
