package port

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/sock"
)

var (
	errAccepting  = errors.New("a listener is either enabled or given to Accept; remove it first")
	errNoListener = errors.New("the socket does not listen")
	errShutDown   = errors.New("the listener was shut down")
)

// An Acceptor is what a listener's record has for Accept.
type Acceptor struct {
	AtOnce int
	Paused atomic.Bool
	Pause  time.Duration // the latest, 0 after a success; under the slot's lock
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second

	// Asked is how many times the listener is asked before an accept whether there is more. So often that costs
	// less than the one accept in vain.
	Asked = 8
)

// takeAccepted takes connections of a listener that the kernel has reported. more says that it did not come to the
// end of them. The slot is locked: a removal waits until what was accepted is somebody's, so that none is
// lost.
func (p *Port) takeAccepted(w *Call, s *Slot, reg *Record, index uint32, out Entries) (n int, more bool) {
	a := reg.Work.Accept
	if a.Paused.Load() {
		return 0, false
	}
	for n < out.Len() && n < a.AtOnce {
		if n > 0 && n <= Asked && !reg.Work.Socket.Acceptable() {
			return n, !p.Core.Edges
		}
		if w.spare == nil {
			w.spare = new(sock.Socket)
		}
		err := reg.Work.Socket.AcceptInto(w.spare)
		if err == sock.ErrWouldBlock {
			switch {
			case p.Core.Edges:
				return n, false // the next one is a new edge
			case n > 0 || p.Core.Poller.Look(Socket(index))&backend.Out == 0:
				return n, true
			}
			// The listener was shut down, which some systems report by a poll, and not by the accept.
			err = errShutDown
		}
		switch {
		case err == nil:
			a.Pause = 0
			w.stripe.accepted.Add(1)
			p.typed.Put(out, n, Packet{Rec: reg, Kind: Connection, Of: unsafe.Pointer(w.spare)})
			w.spare = nil
			n++
			continue
		case errors.Is(err, net.ErrClosed):
			return n, false // by now, which ends the registration
		case sock.IsExhausted(err):
			known := a.Pause != 0
			a.Pause = min(max(2*a.Pause, firstPause), longestPause)
			a.Paused.Store(true)
			p.later(a.Pause, index)
			if known {
				return n, false
			}
		default:
			s.update(func(v uint64) uint64 { return v &^ WEnabled })
		}
		why := err // on the heap, where an error is rare
		p.typed.Put(out, n, Packet{Rec: reg, Events: EventErr, Kind: NoConnection, Of: unsafe.Pointer(&why)})
		return n + 1, false
	}
	return n, true
}
