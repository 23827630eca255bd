//go:build unix

package poll

import (
	"os"
	"time"

	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// kick makes a parked goroutine take a new copy: to watch what was armed, and to let go of what was
// deleted, because a blocked poll(2) keeps a closed socket open.
func (p *Poller) kick() {
	if p.parked && !p.kicked {
		p.kicked = true
		p.bell.Ring()
	}
}

// Bounds of one blocking poll(2). It holds the sockets of its copy open, so a socket that was closed
// without OpRemove is let go of after the longest; streams that were never started are looked at
// again after the shortest, then twice that, and so on.
//
// Where the system does not take all entries at once, the first of them are blocked on, the bell among them. The
// others are looked at after briefly.
const (
	longest  = 250 * time.Millisecond
	shortest = time.Millisecond
	briefly  = 10 * time.Millisecond
)

// Park implements backend.Poller. It blocks one thread.
//
// No report is lost: what was armed before the copy was taken is in the copy, and poll(2) finds what
// holds however long it has; what is armed later kicks, because parked was set with the copy.
func (p *Poller) Park(until time.Time, look func() bool) error {
	defer p.unpark()
	again := shortest
	fresh := p.copyFDs()
	if look() {
		return nil
	}
	for !p.woken.Load() {
		limit := longest
		if fresh {
			limit = again
			again = min(again*2, longest)
		}
		if !until.IsZero() {
			limit = min(limit, time.Until(until))
		}
		if limit < 0 {
			return nil
		}
		n, err := p.wait(limit)
		if err != nil {
			return os.NewSyscallError("poll", err)
		}
		// A kick alone is answered here: a new copy will do.
		kicked := n == 1 && p.blocking[0].Revents != 0
		if n > 0 && !kicked {
			return nil
		}
		if kicked {
			p.bell.Quiet()
			again = shortest
		}
		if fresh && look() {
			return nil
		}
		fresh = p.copyFDs()
	}
	return nil
}

// wait blocks on the copy for at most limit.
func (p *Poller) wait(limit time.Duration) (int, error) {
	n, err := unixsock.Wait(p.blocking, limit)
	if err == nil || unixsock.PollNow(p.blocking[:1]) < 0 {
		return n, err
	}
	if n := unixsock.PollNow(p.blocking); n > 0 {
		return n, nil
	}
	for part := p.blocking; err != nil && len(part) > 1; {
		part = part[:len(part)/2]
		n, err = unixsock.Wait(part, min(limit, briefly))
	}
	return n, err
}

// copyFDs takes the copy to block on and tells whether there are fresh streams, which it leaves out.
func (p *Poller) copyFDs() (fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = true, false
	p.blocking = append(p.blocking[:0], p.fds...)
	if p.fresh == 0 {
		return false
	}
	for at, st := range p.states {
		if f := &p.blocking[at]; st&isFresh != 0 && f.Fd >= 0 {
			f.Fd = ^f.Fd
		}
	}
	return true
}

func (p *Poller) unpark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = false, false
	p.woken.Store(false) // whoever woke us is answered by our return
	p.bell.Quiet()
}

// Wake implements backend.Poller: woken stays until a Park has returned. It is set before the bell
// rings, and looked at after it was quieted.
func (p *Poller) Wake() {
	p.woken.Store(true)
	p.bell.Ring()
}
