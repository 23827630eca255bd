package iouring

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/unixsock"
)

// apply makes changes: one io_uring_enter for all of them.
func (p *Poller) apply(changes []kernel.Change) {
	p.take()
	p.failed = p.failed[:0]
	for i := range changes {
		c := &changes[i]
		c.Status, c.Err = p.change(c)
	}
	p.submit()
	for _, f := range p.failed {
		for i := range changes {
			c := &changes[i]
			if c.Handle == uintptr(f.fd) && c.Action <= kernel.Set && c.Status == kernel.Done {
				c.Status, c.Err = kernel.Refused, f.errno
				if f.errno == unix.EBADF || f.errno == unix.EPERM || f.errno == unix.EOPNOTSUPP {
					c.Status = kernel.Bad
				}
			}
		}
	}
}

// change fills in what one change needs.
func (p *Poller) change(c *kernel.Change) (kernel.Status, error) {
	fd, ok := unixsock.FD(c.Handle)
	if !ok {
		return kernel.Bad, unix.EBADF
	}
	if e := p.lookup(fd); e != nil && e.flags&submitted != 0 || p.ring.room() < roomForChange {
		p.submit()
		if p.ring.room() < roomForChange {
			return kernel.Refused, unix.EAGAIN
		}
	}
	e, status, err := p.find(fd)
	if c.Action == kernel.Add {
		switch status {
		case kernel.Done:
			return kernel.Present, unix.EEXIST
		case kernel.Bad:
			return kernel.Bad, err
		}
		p.add(fd, c)
		return kernel.Done, nil
	}
	if status != kernel.Done {
		return status, err
	}
	switch c.Action {
	case kernel.Set:
		p.want(e, c)
		p.rearm(fd, e)
	case kernel.Mute:
		p.disarm(fd, e)
	case kernel.Delete:
		p.drop(fd, e)
	}
	return kernel.Done, nil
}

// roomForChange is how many entries a change fills in at most, with what it makes of a remnant.
const roomForChange = 4

func (p *Poller) add(fd int, c *kernel.Change) {
	e := p.entry(fd)
	e.cookie = p.cookie
	e.flags = e.flags&(queued|submitted) | watched
	if p.watched.Add(1) == 1 && p.bell.parked.Load() {
		p.bell.nudge() // there are rounds to be made from now on
	}
	p.want(e, c)
	p.arm(fd, e)
}

// want takes what a change asks for, and forgets what has happened before.
func (p *Poller) want(e *entry, c *kernel.Change) {
	e.token = c.Token
	e.flags &^= interest | stirred
	e.flags |= uint8(c.Interest) & (wantsIn | wantsOut)
	if c.Interest&kernel.PeerClosed != 0 {
		e.flags |= wantsEnd
	}
}

// events are the conditions of an entry's poll. Urgent is not among them, because it comes with input.
func (e *entry) events() uint32 {
	events := uint32(e.flags & (wantsIn | wantsOut))
	if e.flags&wantsEnd != 0 {
		events |= unix.POLLRDHUP
	}
	return events
}

// arm makes a new poll. The kernel looks as it does, and completes if something holds.
func (p *Poller) arm(fd int, e *entry) {
	e.thread, e.alien = p.pin(), 0
	e.gen++
	e.flags |= armed
	p.track(fd, e)
	p.ring.push(sqe{op: opPollAdd, fd: int32(fd), len: pollMulti, events: e.events(), data: data(fd, e.gen)})
}

// rearm gives the poll a new generation and conditions, and has the kernel look again. It stays with the
// socket that it is for, whatever the number names by now. Another thread's poll would complete when that
// thread gets to it, so one is made in its place that completes at once.
func (p *Poller) rearm(fd int, e *entry) {
	if e.flags&armed != 0 && e.thread != p.pin() {
		p.cancel(fd, e.gen)
		e.flags &^= armed
	}
	if e.flags&armed == 0 {
		p.recheck = append(p.recheck, int32(fd))
		p.arm(fd, e)
		return
	}
	e.gen++
	p.track(fd, e)
	p.ring.push(sqe{
		op: opPollRemove, flags: flagSkipSuccess, fd: -1, len: pollMulti | pollUpdateEvents | pollUpdateUserData,
		addr: data(fd, e.gen-1), off: data(fd, e.gen), events: e.events(), data: data(fd, e.gen) | control,
	})
}

// adopt gives the poll to this thread, after some reports that another one had to be woken for.
func (p *Poller) adopt(fd int, e *entry) bool {
	if e.alien++; e.alien < adoptAfter || e.flags&armed == 0 || p.ring.room() < roomForChange {
		return false
	}
	p.cancel(fd, e.gen)
	e.flags &^= armed
	p.rearm(fd, e)
	return true
}

const adoptAfter = 4

// disarm ends the poll, and with it the ring's hold on the socket.
func (p *Poller) disarm(fd int, e *entry) {
	if e.flags&armed != 0 {
		p.cancel(fd, e.gen)
	}
	e.gen++
	e.flags &^= armed | stirred
}

// cancel ends a poll, even one whose report is on its way.
func (p *Poller) cancel(fd int, gen uint32) {
	p.ring.push(sqe{op: opAsyncCancel, flags: flagSkipSuccess, fd: -1, addr: data(fd, gen), data: control})
}

// drop forgets a socket.
func (p *Poller) drop(fd int, e *entry) {
	p.disarm(fd, e)
	e.flags &= queued | submitted
	p.watched.Add(-1)
}

// track notes that something was submitted for a number.
func (p *Poller) track(fd int, e *entry) {
	if e.flags&submitted == 0 {
		e.flags |= submitted
		p.sent = append(p.sent, int32(fd))
	}
}
