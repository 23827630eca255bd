//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package kqueue

import (
	"os"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// Park implements backend.Poller. It blocks one thread in poll(2) on the kqueue. Go's own poller cannot
// wait for a kqueue, because it asks for both directions of a descriptor and a kqueue can only be read. A
// kqueue is readable while it has events, so no report is lost between the call of poll and poll(2).
// poll(2) takes no events, so Park does not need q.mu.
func (p *Poller) Park(until time.Time, poll func() bool) error {
	defer p.unpark()
	if poll() {
		return nil
	}
	for !p.woken.Load() {
		limit := longest
		if !until.IsZero() {
			if limit = min(limit, time.Until(until)); limit <= 0 {
				return nil
			}
		}
		n, err := unixsock.Wait(p.parking[:], limit)
		if err != nil {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
	}
	return nil
}

// longest bounds one poll(2) without a timeout.
const longest = time.Hour

func (p *Poller) unpark() {
	p.woken.Store(false) // the return of Park answers the Wake
	p.waker.Reset()
}

// Wake implements backend.Poller. woken stays set until a Park has returned. Wake sets woken before it wakes the
// waker, and each Park reads woken after the Park before it has reset the waker.
func (p *Poller) Wake() {
	p.woken.Store(true)
	p.waker.Wake()
}
