package afd

import (
	"runtime"
	"time"
)

// awaitPackets waits until over returns true, which it does when the packets of a socket's cancelled polls have come. They
// usually come at once. awaitPackets reports whether they came. It unlocks p.mu while it waits, because a parked
// goroutine may have dequeued one of the packets. No other goroutine changes this handle at the same time.
func (p *Poller) awaitPackets(over func() bool) bool {
	const tries, quick, pause = 3000, 20, time.Millisecond
	for try := 0; !over() && try < tries; try++ {
		if try > 0 {
			p.mu.Unlock()
			if try < quick {
				runtime.Gosched()
			} else {
				time.Sleep(pause)
			}
			p.mu.Lock()
		}
		p.takeClosings()
		p.drain()
	}
	return over()
}

// drain takes all packets from the port, and keeps results to report for the next harvest.
func (p *Poller) drain() {
	wakeTaken, found := false, false
	for {
		n, _ := dequeue(p.port, p.packets[:], 0)
		for i := range n {
			if p.packets[i].key == keyWake {
				wakeTaken = true
			} else if p.keep(p.packets[i].block) {
				found = true
			}
		}
		if n < len(p.packets) {
			break
		}
	}
	if wakeTaken {
		p.waker.taken()
	}
	if found {
		p.waker.wake()
	}
}
