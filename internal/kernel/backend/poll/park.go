//go:build unix

package poll

import (
	"os"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// kick makes the parked goroutine take a new copy of the entries, in order to watch those that were armed
// and to release those that were deleted: a blocked poll(2) keeps a closed socket open.
func (p *Poller) kick() {
	if p.parked && !p.kicked {
		p.kicked = true
		p.waker.Wake()
	}
}

// Bounds of one blocking poll(2). It holds the sockets of its copy open, so a socket that was closed
// without OpRemove is released after longest. Dormant sockets are polled again after shortest, then
// after twice that, and so on.
//
// If the system does not take all entries at once, Park blocks on the first ones, among them the waker, and
// polls the others every partLimit.
const (
	longest   = 250 * time.Millisecond
	shortest  = time.Millisecond
	partLimit = 10 * time.Millisecond
)

// Park implements backend.Poller. It blocks one thread.
//
// No report is lost. An entry that was armed before the copy was taken is in the copy, and poll(2) finds
// its conditions however long they have held. Arming an entry later kicks, because parked was set under
// the same lock as the copy was taken.
func (p *Poller) Park(until time.Time, poll func() bool) error {
	defer p.unpark()
	again := shortest
	dormant := p.copyFDs()
	if poll() {
		return nil
	}
	for !p.woken.Load() {
		limit := longest
		if dormant {
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
		// For a kick alone a new copy is enough.
		kicked := n == 1 && p.blocking[0].Revents != 0
		if n > 0 && !kicked {
			return nil
		}
		if kicked {
			p.waker.Reset()
			again = shortest
		}
		if dormant && poll() {
			return nil
		}
		dormant = p.copyFDs()
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
		n, err = unixsock.Wait(part, min(limit, partLimit))
	}
	return n, err
}

// copyFDs takes the copy to block on, without dormant entries. It reports whether there are any.
func (p *Poller) copyFDs() (dormant bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = true, false
	p.blocking = append(p.blocking[:0], p.fds...)
	if p.dormant == 0 {
		return false
	}
	for at, st := range p.states {
		if f := &p.blocking[at]; st&isDormant != 0 && f.Fd >= 0 {
			f.Fd = ^f.Fd
		}
	}
	return true
}

func (p *Poller) unpark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = false, false
	p.woken.Store(false) // the return of Park answers the Wake
	p.waker.Reset()
}

// Wake implements backend.Poller. woken stays set until a Park has returned. No wake-up is lost, because
// Wake sets woken before it wakes the waker, and Park reads woken after it resets the waker.
func (p *Poller) Wake() {
	p.woken.Store(true)
	p.waker.Wake()
}
