package iouring

import "time"

// A poll holds its socket open. A number with a report is checked to name its socket still, and so are all
// others in turn: a few every so many harvests, and more when somebody has been parked for a while. Those
// that were closed without a Delete are dropped.
const (
	sweepAfter  = 64 // harvests
	sweepBusy   = 8
	sweepEvery  = 250 * time.Millisecond
	sweepParked = 1024
)

// sweep looks at the next n places of the table.
func (p *Poller) sweep(n int) {
	for range min(n, len(p.pages)*pageSize) {
		if p.ring.room() == 0 {
			return
		}
		if p.swept++; p.swept >= len(p.pages)*pageSize {
			p.swept = 0
		}
		if e := p.lookup(p.swept); e != nil && e.flags&watched != 0 {
			p.find(p.swept)
		}
	}
}
