package afd

import (
	"slices"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// takeClosings drops the entries of sockets that have been closed. The packets of their witnesses were queued before
// closesocket returned.
func (p *Poller) takeClosings() {
	for {
		n, _ := dequeue(p.closings, p.closed[:], 0)
		for i := range n {
			p.gone(p.closed[i].block)
		}
		if n < len(p.closed) {
			return
		}
	}
}

// harvest reports held entries first, and then dequeues from the port until it is empty. Polls that were started again
// during the harvest may have completed again.
func (p *Poller) harvest(ready []backend.Ready) int {
	if len(p.held) > 0 {
		p.takeClosings()
	}
	n, taken := 0, 0
	for ; n < len(ready) && taken < len(p.held); taken++ {
		e := p.held[taken]
		e.queue = false
		if e.held {
			e.held = false
			n += p.put(e, &ready[n])
		}
		p.settle(e)
	}
	p.held = slices.Delete(p.held, 0, taken)
	wakeTaken, more := false, true
	for n < len(ready) && more {
		packets := p.packets[:min(len(ready)-n, len(p.packets))]
		k, _ := dequeue(p.port, packets, 0)
		more = k == len(packets)
		if k > 0 {
			p.takeClosings()
		}
		for i := range k {
			if packets[i].key == keyWake {
				wakeTaken = true
				continue
			}
			b := packets[i].block
			if p.completed(b) {
				n += p.put(b.owner, &ready[n])
			}
			more = more || b.out
		}
	}
	if wakeTaken {
		p.waker.taken() // may queue the packet again, so it is called after the port is empty
	}
	return n
}

func (p *Poller) put(e *entry, r *backend.Ready) int {
	m, ok := p.report(e)
	if !ok {
		return 0
	}
	*r = backend.Ready{Token: e.token, Mask: m}
	return 1
}

// hold keeps the result of a poll that a parked goroutine has dequeued for the next harvest. It reports whether there
// is something to report.
func (p *Poller) hold(b *block) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keep(b)
}

func (p *Poller) keep(b *block) bool {
	if !p.completed(b) {
		return false
	}
	e := b.owner
	e.held = true
	if !e.queue {
		e.queue = true
		p.held = append(p.held, e)
	}
	return true
}
