//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package kqueue

import (
	"os"
	"time"

	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// Park implements backend.Poller. It blocks one thread in poll(2) on the kqueue: Go's own poller cannot
// wait for it, because it asks for both directions of a descriptor and a kqueue can only be read. A kqueue
// is readable for as long as it has events, so no report is lost between the look and the poll; and poll
// takes none, so it needs no turn.
func (p *Poller) Park(until time.Time, look func() bool) error {
	defer p.unpark()
	if look() {
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

// longest bounds one poll(2) that has no time-out of its own.
const longest = time.Hour

func (p *Poller) unpark() {
	p.woken.Store(false) // whoever woke us is answered by our return
	p.waker.Reset()
}

// Wake implements backend.Poller: woken stays until a Park has returned. It is set before the waker rings,
// and looked at after it was quieted.
func (p *Poller) Wake() {
	p.woken.Store(true)
	p.waker.Wake()
}
