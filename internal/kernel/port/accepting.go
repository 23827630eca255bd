package port

import (
	"errors"
	"net"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/sock"
)

var (
	errAccepting  = errors.New("a listener is either enabled or given to Accept; remove it first")
	errNoListener = errors.New("the socket does not listen")
)

// ErrListenerShut is the cause with which accepting ends if ListenerShut is true.
var ErrListenerShut = errors.New("the listener was shut down")

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second

	// asked is the number of accepts in a row before which the listener is polled for another
	// connection. Up to that many polls cost less than the one accept that fails.
	asked = 8
)

// ListenerShut reports whether a listener was shut down. Some systems report that to poll and not to
// accept; none of those has a backend with edges.
func (p *Port) ListenerShut(h Socket) bool {
	return !p.Core.Edges && p.Core.Poller.PollOne(h)&backend.Out != 0
}

// takeAccepted accepts connections of a listener that was reported. more reports that there may be
// others. The slot is locked, so a removal waits until the accepted connections are in the caller's
// entries, and none is lost.
func (p *Port) takeAccepted(
	w *Call, s *Slot, reg *Record, index uint32, out Entries,
) (n int, more bool) {
	a := reg.Work.Accept
	if a.Paused.Load() {
		return 0, false
	}
	for n < out.Len() && n < a.AtOnce {
		if n > 0 && n <= asked && !reg.Work.Socket.Acceptable() {
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
			case n > 0 || !p.ListenerShut(Socket(index)):
				return n, true
			}
			err = ErrListenerShut
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
			return n, false // closing the listener has ended its registration
		case sock.IsExhausted(err):
			known := a.Pause != 0
			a.Pause = min(max(2*a.Pause, firstPause), longestPause)
			a.Paused.Store(true)
			p.recheckAfter(a.Pause, index, 0)
			if known {
				return n, false
			}
		default:
			s.update(func(v uint64) uint64 { return v &^ wEnabled })
		}
		why := err // a copy, so that only errors are allocated
		of := unsafe.Pointer(&why)
		p.typed.Put(out, n, Packet{Rec: reg, Events: EventErr, Kind: NoConnection, Of: of})
		return n + 1, false
	}
	return n, true
}
