package iouring

import "github.com/socknotify/socknotify/internal/kernel"

// harvest reports what the kernel has put into its queue, for which it need not be asked. Only if that is
// nothing, and the kernel has something to do first, there is a system call.
func (p *Poller) harvest(ready []kernel.Ready) int {
	if p.polls++; p.polls == pollsPerTick {
		p.tock()
		p.sweep(sweepBusy)
	}
	p.take()
	n := p.report(ready)
	if n == 0 && (p.ring.sqFlags.Load()&sqTaskrun != 0 || p.ring.filled() > 0) {
		p.ring.enter()
		p.take()
		n = p.report(ready)
	}
	if n == 0 {
		p.tock()
	}
	if len(p.orphans) > 0 || len(p.refused) > 0 || p.ring.filled() > 0 {
		p.mend()
		p.submit()
	}
	return n
}

// report fills ready from the queue.
func (p *Poller) report(ready []kernel.Ready) int {
	n := 0
	for n < len(ready) && p.queue.length > 0 {
		fd := int(p.queue.pop())
		e := p.lookup(fd)
		e.flags &^= queued
		if e.ready == 0 {
			continue
		}
		if e.tick != p.tick {
			if p.ring.room() == 0 {
				p.ring.enter()
			}
			if e, _, _ = p.find(fd); e == nil {
				continue // it was closed, and the poll kept it open
			}
		}
		ready[n] = kernel.Ready{Token: e.token, Mask: kernel.Mask(e.ready)}
		e.ready = 0
		n++
	}
	return n
}

// A fifo is a queue of numbers.
type fifo struct {
	ring   []int32 // its size is a power of two
	head   int
	length int
}

func (q *fifo) push(fd int32) {
	if q.length == len(q.ring) {
		ring := make([]int32, max(64, 2*len(q.ring)))
		for i := range q.length {
			ring[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.length)&(len(q.ring)-1)] = fd
	q.length++
}

func (q *fifo) pop() int32 {
	fd := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.length--
	return fd
}
