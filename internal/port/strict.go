package port

import (
	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
)

func (c *Core) SetStrict(strict bool) {
	c.strict = strict
	c.OwnEdges = c.Edges && !strict
}

// held is what a strict edge must not report, because it holds as the registration is enabled. In a
// direction that the program or the socket vouches for nothing held: what does has begun since.
func (p *Port) held(r *Entry, h Socket, stream bool) kernel.Mask {
	if r.Drained {
		return 0
	}
	m := p.Core.Kernel.Look(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started: all is yet to come (E6)
	}
	if t := r.Tie; t != nil {
		if t.Drained(tie.Recv) {
			m &^= kernel.In | kernel.PeerClosed | kernel.Dead
		}
		if t.Drained(tie.Send) {
			m &^= kernel.Out
		}
	}
	return m
}

// heed has the socket of an entry tell when what it held is drained. The word must have been swapped: a
// would-block that came before is not of whoever enables, and drains after that.
func (r *Entry) heed(held kernel.Mask) {
	if t := r.Tie; t != nil {
		t.Silenced(silenced(held))
	}
}

// repeats tells that events say nothing but what a strict edge has been told already. An end of stream is
// told as such: as something to receive it is told with that.
func repeats(e Events, word uint64) bool {
	var known Events
	if word&toldBits(kernel.In) != 0 {
		known |= EventIn
	}
	if word&toldBits(kernel.Out) != 0 {
		known |= EventOut
	}
	if word&toldBits(kernel.PeerClosed|kernel.Dead) != 0 {
		known |= EventHangup
	}
	return e&^known == 0
}
