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

// took notes that bytes were moved.
func (f *flow) took(n int) {
	if engine.Limits(f.rate) && n > 0 {
		f.bucket.Take(int64(n), ticksPerSecond)
	}
}
