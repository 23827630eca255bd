package server

import (
	"cmp"
	"math"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
)

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at once. The zero Rate,
// and one with a negative PerSecond, is no limit. A Burst of 0 means PerSecond.
type Rate = serving.Rate

// on reports whether r is a limit.
func on(r Rate) bool { return r.PerSecond > 0 }

func burst(r Rate) int64 {
	if r.Burst > 0 {
		return int64(r.Burst)
	}
	return int64(r.PerSecond)
}

// checkRate returns an error that names the field that is out of range.
func checkRate(name string, r Rate) error {
	if r.PerSecond <= 0 && r.Burst > 0 {
		return invalid("%s.Burst is %d and PerSecond is %d", name, r.Burst, r.PerSecond)
	}
	return cmp.Or(checkNumber(name+".PerSecond", max(r.PerSecond, 0), math.MaxInt32),
		checkNumber(name+".Burst", r.Burst, math.MaxInt32))
}

// A bucket counts what a Rate allows. The zero value allows a whole burst. Time is a number of units, of which there are
// per in a second.
type bucket struct {
	missing int64 // from a full burst, times per
	at      int64 // when missing was right
}

// available returns how much may happen now.
func (b *bucket) available(r Rate, now, per int64) int64 {
	if passed := now - b.at; passed > 0 {
		if passed > b.missing/int64(r.PerSecond) {
			b.missing = 0
		} else {
			b.missing -= passed * int64(r.PerSecond)
		}
	}
	b.at = now
	return burst(r) - (b.missing+per-1)/per
}

// take notes that something has happened n times. It must follow available.
func (b *bucket) take(n, per int64) { b.missing += n * per }

// wait returns the units of time until n may happen. It must follow available.
func (b *bucket) wait(r Rate, n, per int64) int64 {
	over := b.missing - (burst(r)-n)*per
	return max((over+int64(r.PerSecond)-1)/int64(r.PerSecond), 1)
}

// acceptRates has the buckets for new connections. They are used with the server's lock held, and with the system's clock,
// because that of the wheel stops while there are no connections.
type acceptRates struct {
	all    bucket
	of     map[netip.Addr]bucket
	sweeps int // the size of the map at which full buckets are removed
}

const leastSweep = 1024

// network returns the address that new connections are counted for. The addresses of an IPv6 network of 64 bits count as
// one, because any host on it may use all of them.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		a = p.Addr()
	}
	return a
}

// allow counts a new connection, or returns an error if it is one too many. from may be the zero Addr.
func (a *acceptRates) allow(all, each Rate, from netip.Addr, now time.Time) error {
	const per = int64(time.Second)
	at := now.UnixNano()
	var b bucket
	from = network(from)
	limited := on(each) && from.IsValid()
	if limited {
		if b = a.of[from]; b.available(each, at, per) < 1 {
			return errAcceptRateAddr
		}
	}
	if on(all) {
		if a.all.available(all, at, per) < 1 {
			return errAcceptRate
		}
		a.all.take(1, per)
	}
	if limited {
		if b.take(1, per); a.of == nil {
			a.of = make(map[netip.Addr]bucket)
		}
		a.of[from] = b
		if len(a.of) >= max(a.sweeps, leastSweep) {
			for k, b := range a.of {
				if b.available(each, at, per); b.missing == 0 {
					delete(a.of, k)
				}
			}
			a.sweeps = 2 * len(a.of)
		}
	}
	return nil
}

// rates has the buckets of a connection, with the ticks of the wheel as the clock. They are used with the connection's lock
// held.
type rates struct {
	in, out bucket
	full    bool // wNoOut is set because nothing more may be sent
}

const ticksPerSecond = int64(time.Second / tick)

// inTicks returns the Rate for bytes, whose buckets are filled with each tick.
func inTicks(r Rate) Rate {
	return Rate{PerSecond: r.PerSecond, Burst: int(max(burst(r), int64(r.PerSecond)/10))}
}

// some returns the number of bytes that a connection waits for, so that it does not receive or send byte by byte.
func some(r Rate) int64 { return max(min(burst(r), int64(r.PerSecond)/10), 1) }

// allow returns how many of n bytes may be moved now. If there are none, it sets a bit, which the
// wheel clears. The lock is held.
func (c *conn) allow(b *bucket, r Rate, bit uint32, n int) int {
	wheel := c.server().wheel
	k := b.available(r, int64(wheel.Now()), ticksPerSecond)
	if k < 1 && n > 0 {
		c.word.Or(bit)
		wheel.Hasten(c, time.Duration(b.wait(r, some(r), ticksPerSecond)-1)*tick)
	}
	return int(max(min(k, int64(n)), 0))
}

// allowIn returns how many of n bytes may be received now. The lock is held.
func (c *conn) allowIn(n int) int {
	r := c.server().ReadRate
	if !on(r) || c.word.Load()&wDead != 0 {
		return n
	}
	return c.allow(&c.extra.rates.in, inTicks(r), wNoIn, n)
}

func (c *conn) tookIn(n int) {
	if on(c.server().ReadRate) && n > 0 {
		c.extra.rates.in.take(int64(n), ticksPerSecond)
	}
}

// allowOut is allowIn for bytes to be sent.
func (c *conn) allowOut(n int) int {
	r := c.server().WriteRate
	if !on(r) || c.word.Load()&wDead != 0 {
		return n
	}
	k := c.allow(&c.extra.rates.out, inTicks(r), wNoOut, n)
	c.extra.rates.full = c.extra.rates.full || k == 0 && n > 0
	return k
}

func (c *conn) tookOut(n int) {
	if on(c.server().WriteRate) && n > 0 {
		c.extra.rates.out.take(int64(n), ticksPerSecond)
	}
}

// ratesExpired ends the waits for a Rate that are over, and returns the time until the next end, or 0. The lock is held.
func (c *conn) ratesExpired(word uint32) (next time.Duration) {
	s := c.server()
	wait := func(b *bucket, r Rate) (over bool) {
		if b.available(r, int64(s.wheel.Now()), ticksPerSecond) >= some(r) {
			return true
		}
		if d := time.Duration(b.wait(r, some(r), ticksPerSecond)) * tick; next == 0 || d < next {
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
