package iouring

import (
	"golang.org/x/sys/unix"
)

// An orphan is a poll that is not as its entry says.
type orphan struct {
	fd  int32
	gen uint32
}

// A failure is a poll that the kernel would not make.
type failure struct {
	fd    int32
	errno unix.Errno
}

// submit submits what was filled in, takes the completions, and deals with what came to nothing. That fills
// in more, which is submitted as well; what is still left then waits for a later call.
func (p *Poller) submit() {
	for range 3 {
		if p.ring.filled() == 0 {
			break
		}
		p.ring.enter()
		p.take()
		p.mend()
	}
	p.unpin()
}

// mend makes the polls anew that the kernel has ended, or would not update.
//
// A poll is made of a number, which can be closed and used again at any time. So the number is checked to
// name the entry's socket before and after, and if it does both times it is this socket that the poll is for.
func (p *Poller) mend() {
	for _, fd := range p.sent {
		p.lookup(int(fd)).flags &^= submitted
	}
	p.sent = p.sent[:0]
	for len(p.recheck) > 0 && p.ring.room() > 0 {
		fd := int(p.recheck[len(p.recheck)-1])
		p.recheck = p.recheck[:len(p.recheck)-1]
		if p.lookup(fd).flags&watched != 0 {
			p.find(fd)
		}
	}
	for len(p.refused) > 0 && p.ring.room() >= roomForChange {
		o := p.refused[len(p.refused)-1]
		p.refused = p.refused[:len(p.refused)-1]
		if e := p.lookup(int(o.fd)); e.gen == o.gen && e.flags&armed != 0 {
			// A report was on its way when the update came, in another thread's hands.
			p.cancel(int(o.fd), o.gen-1)
			e.flags &^= armed
			p.rearm(int(o.fd), e)
		}
	}
	for len(p.orphans) > 0 && p.ring.room() >= roomForChange {
		o := p.orphans[len(p.orphans)-1]
		p.orphans = p.orphans[:len(p.orphans)-1]
		e := p.lookup(int(o.fd))
		if e.gen != o.gen || e.flags&watched == 0 {
			continue
		}
		if e, _, _ := p.find(int(o.fd)); e != nil {
			p.rearm(int(o.fd), e)
		}
	}
}

// take takes all completions: reports into the queue, the rest where mend and apply find it.
func (p *Poller) take() {
	r := &p.ring
	for {
		head, tail := r.cqHead.Load(), r.cqTail.Load()
		for ; head != tail; head++ {
			p.completed(&r.cqes[head&uint32(len(r.cqes)-1)])
		}
		r.cqHead.Store(head)
		if r.sqFlags.Load()&sqOverflow == 0 {
			return
		}
		r.enter() // it moves what did not fit
	}
}

func (p *Poller) completed(c *cqe) {
	fd, gen := int(int32(c.data)), uint32(c.data>>32)
	if uint32(c.data)&control != 0 {
		p.controlled(int(uint32(c.data)&^control), gen, c)
		return
	}
	e := p.lookup(fd)
	if e == nil || e.gen != gen || e.flags&armed == 0 {
		return // of a poll that was replaced
	}
	if c.res < 0 && unix.Errno(-c.res) != unix.ECANCELED {
		e.flags &^= armed
		p.drop(fd, e)
		p.failed = append(p.failed, failure{int32(fd), unix.Errno(-c.res)})
		return
	}
	if c.flags&cqeMore == 0 {
		// The queue was full, or the thread that made the poll is no more.
		e.flags &^= armed
		p.orphans = append(p.orphans, orphan{int32(fd), gen})
	}
	if c.res < 0 {
		return
	}
	e.flags |= stirred
	if e.flags&queued == 0 {
		e.flags |= queued
		p.queue.push(int32(fd))
	}
}

// controlled deals with the completion of what is no poll of an entry: a beacon's, or a failure.
func (p *Poller) controlled(at int, gen uint32, c *cqe) {
	switch {
	case c.data == control: // nothing left to cancel
	case gen == beacon:
		p.threads[at].answered(c)
	case gen == lighting:
		p.threads[at].unlit(c.res)
	default:
		if e := p.lookup(at); e != nil && e.gen == gen && e.flags&armed != 0 {
			p.refused = append(p.refused, orphan{int32(at), gen})
		}
	}
}
