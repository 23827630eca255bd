package iouring

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A poll belongs to the thread that made it. When its socket becomes ready the kernel has that thread put
// the completion into the queue, the next time that it is in the kernel: it wakes one that sleeps, and one
// that runs comes there with the next system call or clock tick. So what has happened may be told a little
// later, and somebody who is about to say that there is nothing must be sure (Settle).
//
// Each such thread has a poll of something that is always ready, its beacon. A thread does what it has to do
// in order, so when its beacon has been lit again and has completed, all that came before is told.
type thread struct {
	id    int32
	dead  bool
	lit   bool // its beacon has yet to complete
	again bool // and is to be lit anew then
}

// beacon and lighting stand in the place of a generation: for the beacons' completions, and for those of
// lighting one that failed.
const (
	beacon   = 1 << 31
	lighting = 1<<31 | 1
)

// pin keeps the goroutine on its thread until unpin, and makes sure that the thread has a beacon. It returns
// its place among the threads.
func (p *Poller) pin() uint16 {
	if !p.pinned {
		p.pinned = true
		runtime.LockOSThread()
		p.self = p.enrol(gettid())
	}
	return p.self
}

func gettid() int32 {
	id, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	return int32(id)
}

// known returns the place of a thread; ok is false for one that has made no poll.
func (p *Poller) known(id int32) (at uint16, ok bool) {
	for i := range p.threads {
		if t := &p.threads[i]; t.id == id && !t.dead {
			return uint16(i), true
		}
	}
	return 0, false
}

func (p *Poller) enrol(id int32) uint16 {
	if at, ok := p.known(id); ok {
		return at
	}
	at := slices.IndexFunc(p.threads, func(t thread) bool { return t.dead })
	if at < 0 {
		at = len(p.threads)
		p.threads = append(p.threads, thread{})
	}
	p.threads[at] = thread{id: id}
	p.ring.push(sqe{op: opPollAdd, fd: int32(p.bell.fd), len: pollMulti, events: unix.POLLOUT, data: data(at, beacon) | control})
	return uint16(at)
}

func (p *Poller) unpin() {
	if p.pinned {
		p.pinned = false
		runtime.UnlockOSThread()
	}
}

// answered deals with the completion of a beacon.
func (t *thread) answered(c *cqe) {
	t.lit = t.again
	if c.res < 0 || c.flags&cqeMore == 0 {
		t.lit, t.dead = false, true
	}
}

// unlit deals with a beacon that could not be lit.
func (t *thread) unlit(res int32) {
	if unix.Errno(-res) == unix.EALREADY {
		t.again = true // it was, by an earlier Settle that did not wait
		return
	}
	t.lit, t.dead = false, true
}

// patience is for threads that do not get to it, because they wait for a disk, say.
const patience = time.Second

// Settle makes what has happened so far visible to the Polls that follow.
func (p *Poller) Settle() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.take()
	for i := range p.threads {
		p.threads[i].lit = !p.threads[i].dead
		p.threads[i].again = p.threads[i].lit
	}
	for until := time.Now().Add(patience); p.light(); p.take() {
		if time.Now().After(until) {
			return
		}
		p.ring.await(patience / 10)
	}
}

// light lights the beacons that have to be, and tells whether any has yet to complete.
func (p *Poller) light() bool {
	for i := range p.threads {
		t := &p.threads[i]
		if t.again && !t.dead && p.ring.room() > 0 {
			t.again = false
			p.ring.push(sqe{
				op: opPollRemove, flags: flagSkipSuccess, fd: -1, len: pollMulti | pollUpdateEvents,
				addr: data(i, beacon) | control, events: unix.POLLOUT, data: data(i, lighting) | control,
			})
		}
	}
	p.ring.enter()
	p.take()
	return slices.ContainsFunc(p.threads, func(t thread) bool { return t.lit && !t.dead })
}
