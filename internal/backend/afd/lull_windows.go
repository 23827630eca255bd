package afd

import (
	"runtime"
	"time"
)

// lull waits until the packets of a socket's cancelled polls have come, which they do at once as a rule, and
// tells whether they have. The lock is released meanwhile, for a parked goroutine that has dequeued one;
// nobody else changes this handle.
func (p *Poller) lull(over func() bool) bool {
	const tries, quick, patience = 3000, 20, time.Millisecond
	for try := 0; !over() && try < tries; try++ {
		if try > 0 {
			p.mu.Unlock()
			if try < quick {
				runtime.Gosched()
			} else {
				time.Sleep(patience)
			}
			p.mu.Lock()
		}
		p.removePort()
		p.sweep()
	}
	return over()
}

// sweep takes what is in the port, and keeps what there is to report for the next harvest.
func (p *Poller) sweep() {
	rang, found := false, false
	for {
		n, _ := dequeue(p.port, p.packets[:], 0)
		for i := range n {
			if p.packets[i].key == keyBell {
				rang = true
			} else if p.keep(p.packets[i].block) {
				found = true
			}
		}
		if n < len(p.packets) {
			break
		}
	}
	if rang {
		p.bell.overheard()
	}
	if found {
		p.bell.ring()
	}
}
