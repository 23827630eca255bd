package port

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

func (c *Core) SetStrict(strict bool) {
	c.strict = strict
	c.OwnEdges = c.Edges && !strict
}

// held returns the conditions that a strict edge must not report because they hold as the registration is enabled. In a
// direction that was drained, no condition held before; what holds now has begun since.
func (p *Port) held(r *Entry, h Socket, stream bool) backend.Mask {
	if r.Drained {
		return 0
	}
	m := p.Core.Poller.PollOne(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started (E6)
	}
	if t := r.FD; t != nil {
		if t.Drained(fdstate.Recv) {
			m &^= backend.In | backend.PeerClosed | backend.Dead
		}
		if t.Drained(fdstate.Send) {
			m &^= backend.Out
		}
	}
	return m
}

// noteReported makes the socket of an entry report when the conditions that held are drained. The word must have been
// swapped: a call that would have blocked before the swap was not made by the goroutine that enables and then drains.
func (r *Entry) noteReported(held backend.Mask) {
	if t := r.FD; t != nil {
		t.Suppressed(suppressedBy(held))
	}
}

// repeats reports whether a strict edge has reported all of these events already. An end of stream has been reported once
// PeerClosed has, although it can still be received.
func repeats(e Events, word uint64) bool {
	var known Events
	if word&reportedBits(backend.In) != 0 {
		known |= EventIn
	}
	if word&reportedBits(backend.Out) != 0 {
		known |= EventOut
	}
	if word&reportedBits(backend.PeerClosed|backend.Dead) != 0 {
		known |= EventHangup
	}
	return e&^known == 0
}
