package socknotify

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/sock"
)

var (
	errAccepting  = errors.New("a listener is either enabled or given to Accept; remove it first")
	errNoListener = errors.New("the socket does not listen")
)

// Accept has connections delivered as completions (AcceptEx): from now on a listener's connections are
// dequeued as notifications with its key, whose [Notification.Accepted] has the connected socket. Calling it
// again changes n.
//
// n is how many accepts are outstanding. Where a kernel accepts ahead, and none does so far (docs/design.md),
// it accepts so many before anybody dequeues, and no more. Elsewhere nothing is accepted that nobody dequeues
// (X3): a call takes up to n connections, and no more than its entries hold, before it lets others have their
// turn; the rest wait in the listener's backlog.
//
// Where descriptors or memory run out, one notification says so (EventErr, and the error from Accepted), and
// accepting pauses, to be tried again after a time that grows to a second; it goes on by itself. Any other
// failure is reported the same way and ends it: remove the listener.
//
// The listener is removed like any registration, and its EventRemove is the last that comes for the key;
// OpDisable pauses, Accept goes on. The error is an *[OpError], ErrInvalid for a nil listener or an n below
// 1, or ErrClosed.
func (p *Port[K]) Accept(listener *sock.Socket, key K, n int) error {
	switch {
	case p.core.closed.Load():
		return ErrClosed
	case listener == nil:
		return callError("Accept", "a nil listener")
	case n < 1:
		return callError("Accept", fmt.Sprintf("n: fewer than one accept outstanding (%d)", n))
	}
	w := p.begin()
	if w == nil {
		return ErrClosed
	}
	r := Registration[K]{Sock: listener, Key: key, Filter: EventIn, Op: OpEnable, Trigger: TriggerLevel | TriggerPersistent}
	e := r.entry()
	e.work = &work{socket: listener, accept: &acceptor{atOnce: n}}
	p.register(w, &e)
	p.complete(w)
	p.end(w)
	runtime.KeepAlive(p)
	return r.Result
}

// Accepted returns the connection of a completion of [Port.Accept], which is the caller's, or why there is
// none. Both are nil for any other notification.
func (n Notification[K]) Accepted() (*sock.Socket, error) {
	switch n.kind {
	case connection:
		return (*sock.Socket)(n.of), nil
	case noConnection:
		return nil, *(*error)(n.of)
	}
	return nil, nil
}

// An acceptor is what a listener's record has for Accept.
type acceptor struct {
	atOnce int
	paused atomic.Bool
	pause  time.Duration // the latest, 0 after a success; under the slot's lock
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second

	// asked is how many times the listener is asked before an accept whether there is more. So often that costs
	// less than the one accept in vain.
	asked = 8
)

// takeAccepted takes connections of a listener that the kernel has reported. more says that it did not come to the
// end of them. The slot is locked: a removal waits until what was accepted is somebody's, so that none is
// lost.
func (p *port) takeAccepted(w *call, s *slot, reg *record, index uint32, out entries) (n int, more bool) {
	a := reg.work.accept
	if a.paused.Load() {
		return 0, false
	}
	for n < out.len() && n < a.atOnce {
		if n > 0 && n <= asked && !reg.work.socket.Acceptable() {
			return n, !p.core.edges
		}
		if w.spare == nil {
			w.spare = new(sock.Socket)
		}
		err := reg.work.socket.AcceptInto(w.spare)
		if err == sock.ErrWouldBlock {
			if p.core.edges {
				return n, false // the next one is a new edge
			}
			break
		}
		switch {
		case err == nil:
			a.pause = 0
			w.stripe.accepted.Add(1)
			p.typed.put(out, n, packet{rec: reg, kind: connection, of: unsafe.Pointer(w.spare)})
			w.spare = nil
			n++
			continue
		case errors.Is(err, net.ErrClosed):
			return n, false // by now, which ends the registration
		case sock.IsExhausted(err):
			known := a.pause != 0
			a.pause = min(max(2*a.pause, firstPause), longestPause)
			a.paused.Store(true)
			p.later(a.pause, index)
			if known {
				return n, false
			}
		default:
			s.update(func(v uint64) uint64 { return v &^ wEnabled })
		}
		why := err // on the heap, where an error is rare
		p.typed.put(out, n, packet{rec: reg, events: EventErr, kind: noConnection, of: unsafe.Pointer(&why)})
		return n + 1, false
	}
	return n, true
}
