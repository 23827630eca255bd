package iouring

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/unixsock"
)

// harvest reports the sockets whose completions the kernel has put into its queue, for which it need not be
// asked. Only if there is nothing, and some thread has work to do, is there an io_uring_enter.
func (p *Poller) harvest(ready []kernel.Ready) int {
	if p.harvests++; p.harvests == sweepAfter {
		p.harvests = 0
		p.sweep(sweepBusy)
	}
	p.take()
	n := p.report(ready)
	if n == 0 && (p.ring.sqFlags.Load()&sqTaskrun != 0 || p.ring.filled() > 0) {
		p.ring.enter()
		p.take()
		n = p.report(ready)
	}
	if len(p.orphans) > 0 || len(p.refused) > 0 || p.ring.filled() > 0 || p.pinned {
		p.mend()
		p.submit()
	}
	return n
}

// chunk is how many sockets are looked at by one poll(2).
const chunk = 64

// report looks at the sockets in the queue and fills ready.
//
// A completion says what had woken its poll, however long ago. It may be over by now, it may be half of what
// there is, and the number may have been closed. So poll(2) is asked what holds, and then the number for its
// socket: as no two sockets have the same identity, it named this one when poll(2) looked.
func (p *Poller) report(ready []kernel.Ready) int {
	n := 0
	for n < len(ready) && p.queue.length > 0 {
		fds := p.next(min(chunk, len(ready)-n))
		if len(fds) == 0 || unixsock.PollNow(fds) <= 0 {
			continue
		}
		for i := range fds {
			f := &fds[i]
			if f.Revents == 0 {
				continue
			}
			if p.ring.room() == 0 {
				p.ring.enter()
			}
			if e, _, _ := p.find(int(f.Fd)); e != nil {
				ready[n] = kernel.Ready{Token: e.token, Mask: mask(f.Revents)}
				n++
			}
		}
	}
	return n
}

// next takes up to n sockets from the queue.
func (p *Poller) next(n int) []unix.PollFd {
	self, known := p.known(gettid())
	fds, adopted := p.fds[:0], false
	for len(fds) < n && p.queue.length > 0 {
		fd := p.queue.pop()
		e := p.lookup(int(fd))
		if e.flags&stirred != 0 {
			f := unix.PollFd{Fd: fd, Events: int16(e.events())}
			if e.flags&wantsIn != 0 {
				f.Events |= unix.POLLPRI
			}
			fds = append(fds, f)
			if known && e.thread == self {
				e.alien = 0
			} else if p.adopt(int(fd), e) {
				adopted = true
			}
		}
		e.flags &^= queued | stirred
	}
	if adopted {
		// The new polls complete if something holds, and that is about to be told.
		p.ring.enter()
		p.take()
		for i := range fds {
			p.lookup(int(fds[i].Fd)).flags &^= stirred
		}
	}
	return fds
}

// mask translates conditions, whose low bits are the seam's.
func mask(events int16) kernel.Mask {
	m := kernel.Mask(events) & (kernel.In | kernel.Urgent | kernel.Out | kernel.Err | kernel.Dead)
	if events&unix.POLLRDHUP != 0 {
		m |= kernel.PeerClosed
	}
	return m
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
