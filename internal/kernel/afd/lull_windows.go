package afd

import "time"

// lull waits until no poll of a socket is under way that was cancelled, be it that the socket was removed
// and is added again, and tells whether that has come. The packets come at once as a rule. The lock is
// released meanwhile, for a parked goroutine that has dequeued one; nobody else changes this handle.
func (p *Poller) lull(base uintptr) bool {
	const tries, patience = 3000, time.Millisecond
	for try := 0; p.dying[base] != nil && try < tries; try++ {
		if try > 0 {
			p.mu.Unlock()
			time.Sleep(patience)
			p.mu.Lock()
		}
		p.bury()
		p.sweep()
	}
	return p.dying[base] == nil
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
