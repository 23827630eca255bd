package engine

import (
	"cmp"
	"math"
	"net/netip"

	"github.com/socknotify/socknotify/internal/serving"
)

// Limits reports whether r is a limit.
func Limits(r serving.Rate) bool { return r.PerSecond > 0 }

// Burst returns what may happen at once.
func Burst(r serving.Rate) int64 {
	if r.Burst > 0 {
		return int64(r.Burst)
	}
	return int64(r.PerSecond)
}

// CheckRate returns an error that names the field that is out of range.
func CheckRate(name string, r serving.Rate) error {
	if r.PerSecond <= 0 && r.Burst > 0 {
		return Invalid("%s.Burst is %d and PerSecond is %d", name, r.Burst, r.PerSecond)
	}
	return cmp.Or(CheckNumber(name+".PerSecond", max(r.PerSecond, 0), math.MaxInt32),
		CheckNumber(name+".Burst", r.Burst, math.MaxInt32))
}

// A Bucket counts what a Rate allows. The zero value allows a whole burst. Time is a number of
// units, of which there are per in a second.
type Bucket struct {
	missing int64 // from a full burst, times per
	at      int64 // when missing was right
}

// Available returns how much may happen now.
func (b *Bucket) Available(r serving.Rate, now, per int64) int64 {
	if passed := now - b.at; passed > 0 {
		if passed > b.missing/int64(r.PerSecond) {
			b.missing = 0
		} else {
			b.missing -= passed * int64(r.PerSecond)
		}
	}
	b.at = now
	return Burst(r) - (b.missing+per-1)/per
}

// Take notes that something has happened n times. It must follow Available.
func (b *Bucket) Take(n, per int64) { b.missing += n * per }

// Wait returns the units of time until n may happen. It must follow Available.
func (b *Bucket) Wait(r serving.Rate, n, per int64) int64 {
	over := b.missing - (Burst(r)-n)*per
	return max((over+int64(r.PerSecond)-1)/int64(r.PerSecond), 1)
}

// Network returns the address that new connections are counted for. The addresses of an IPv6
// network of 64 bits count as one, because any host on it may use all of them.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		a = p.Addr()
	}
	return a
}
