package iouring

import "time"

// A poll holds its socket open. So descriptor numbers are looked at, from time to time, whether they still
// name the sockets that are watched: those that were closed without a Delete are dropped.
//
// A number with a report is looked at once per tick. A tick ends when a harvest found nothing, after
// pollsPerTick harvests otherwise. The others are looked at in turn, a few each tick and more when somebody
// has been parked for a while.
const (
	pollsPerTick = 64
	sweepBusy    = 8
	sweepParked  = 1024
	sweepEvery   = 250 * time.Millisecond
)

// tock ends a tick.
func (p *Poller) tock() {
	p.tick++
	p.polls = 0
}

// sweep looks at up to n numbers.
func (p *Poller) sweep(n int) {
	for range len(p.pages)*pageSize + 1 {
		if n == 0 || p.watched == 0 || p.ring.room() == 0 {
			return
		}
		if p.swept++; p.swept >= len(p.pages)*pageSize {
			p.swept = 0
		}
		if e := p.lookup(p.swept); e != nil && e.flags&watched != 0 {
			n--
			p.find(p.swept)
		}
	}
}
