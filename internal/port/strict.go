package port

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

func (c *Core) SetStrict(strict bool) {
	c.strict = strict
	c.OwnEdges = c.Edges && !strict
}

// held is what a strict edge must not report, because it holds as the registration is enabled. In a
// direction that the program or the socket vouches for nothing held: what does has begun since.
func (p *Port) held(r *Entry, h Socket, stream bool) backend.Mask {
	if r.Drained {
		return 0
	}
	m := p.Core.Poller.Look(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started: all is yet to come (E6)
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

// noteReported has the socket of an entry tell when what it held is drained. The word must have been swapped: a
// would-block that came before is not of whoever enables, and drains after that.
func (r *Entry) noteReported(held backend.Mask) {
	if t := r.FD; t != nil {
		t.Suppressed(silenced(held))
	}
}

// repeats tells that events say nothing but what a strict edge has been told already. An end of stream is
// told as such: as something to receive it is told with that.
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
