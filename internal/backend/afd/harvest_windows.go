package afd

import (
	"slices"

	"github.com/socknotify/socknotify/internal/backend"
)

// removePort learns which sockets have been closed. The packets of their witnesses were queued before closesocket
// returned.
func (p *Poller) removePort() {
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

// harvest reports what Park has found, and then what is in the port, until that is empty: polls that were
// made again on the way may have completed again.
func (p *Poller) harvest(ready []backend.Ready) int {
	if len(p.held) > 0 {
		p.removePort()
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
	rang, more := false, true
	for n < len(ready) && more {
		packets := p.packets[:min(len(ready)-n, len(p.packets))]
		k, _ := dequeue(p.port, packets, 0)
		more = k == len(packets)
		if k > 0 {
			p.removePort()
		}
		for i := range k {
			if packets[i].key == keyBell {
				rang = true
				continue
			}
			b := packets[i].block
			if p.completed(b) {
				n += p.put(b.owner, &ready[n])
			}
			more = more || b.out
		}
	}
	if rang {
		p.bell.overheard() // which may ring again, so not before the port is empty
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

// hold keeps for the next harvest what a parked goroutine has dequeued, and tells whether it is anything.
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
