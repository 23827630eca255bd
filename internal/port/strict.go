package port

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// held returns the conditions that a strict edge must not report because they hold as the registration is enabled. In a
// direction that was drained, no condition held before; what holds now has begun since. fd belongs to the registration,
// which may be enabled by its handle alone.
func (p *Port) held(fd *fdstate.FD, drained bool, h Socket, stream bool) backend.Mask {
	if drained {
		return 0
	}
	m := p.Core.Poller.PollOne(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started (E6)
	}
	if fd != nil {
		if fd.Drained(fdstate.Recv) {
			m &^= backend.In | backend.PeerClosed | backend.Dead
		}
		if fd.Drained(fdstate.Send) {
			m &^= backend.Out
		}
	}
	return m
}

// noteHeld makes the socket of a registration report when the conditions that held are drained. The word must have been
// swapped: a call that would have blocked before the swap was not made by the goroutine that enables and then drains.
func noteHeld(fd *fdstate.FD, held backend.Mask) {
	if fd != nil && held != 0 {
		fd.Suppressed(suppressedBy(held))
	}
}
