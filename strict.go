package socknotify

import (
	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
)

// WithStrictEdge makes edges of the port as rare as the contract allows (T2), which is how Windows reports
// them: a program that hangs there for an edge that it relied upon hangs here, too, in its tests. An edge
// registration then hears of a condition of its filter only when that begins to hold: neither at OpEnable,
// if it held already, nor again for what arrives while the socket has not been drained. Errors are always
// reported.
//
// That a socket was drained the port learns as on a kernel without edges, whatever kernel it has: a socket
// of package sock tells by itself, a raw handle is enabled again with Drained. [Port.KernelEdges] is false.
//
// It is for tests. What does not come from the kernel as an edge is taken from the kernel and dropped, and
// enabling costs two system calls more.
func WithStrictEdge() Option {
	return func(o *options) { o.Strict = true }
}

func (c *core) setStrict(strict bool) {
	c.strict = strict
	c.ownEdges = c.edges && !strict
}

// held is what a strict edge must not report, because it holds as the registration is enabled. In a
// direction that the program or the socket vouches for nothing held: what does has begun since.
func (p *port) held(r *entry, h Socket, stream bool) kernel.Mask {
	if r.drained {
		return 0
	}
	m := p.core.kernel.Look(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started: all is yet to come (E6)
	}
	if t := r.tie; t != nil {
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
func (r *entry) heed(held kernel.Mask) {
	if t := r.tie; t != nil {
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
