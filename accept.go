package socknotify

import (
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"time"

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
// n is how many accepts are outstanding. Where the system accepts ahead, it accepts so many before anybody
// dequeues, and no more. Elsewhere nothing is accepted that nobody dequeues: a call takes up to n
// connections, and no more than its entries hold, before it lets others have their turn; the rest wait in
// the listener's backlog.
//
// Where descriptors or memory run out, one notification says so (EventErr, and the error from Accepted), and
// accepting pauses, to be tried again after a time that grows to a second; it goes on by itself. Any other
// failure is reported the same way and ends it: remove the listener.
//
// The listener is removed like any registration, and its EventRemove is the last that comes for the key;
// OpDisable pauses, Accept goes on. The error is an *[OpError] or ErrClosed.
func (p *Port[K]) Accept(listener *sock.Socket, key K, n int) error {
	r := Registration[K]{Sock: listener, Key: key, Filter: EventIn, Op: OpEnable, Trigger: TriggerLevel | TriggerPersistent, accepts: n}
	switch {
	case p.core.closed.Load():
		return ErrClosed
	case listener == nil:
		return callError("Accept", "a nil listener")
	case n < 1:
		return callError("Accept", "fewer than one accept outstanding")
	}
	w := p.begin()
	if w == nil {
		return ErrClosed
	}
	p.register(w, &r)
	p.complete(w)
	p.end(w)
	runtime.KeepAlive(p)
	return r.Result
}

// Accepted returns the connection of a completion of [Port.Accept], which is the caller's, or why there is
// none. Both are nil for any other notification.
func (n Notification[K]) Accepted() (*sock.Socket, error) {
	switch a := n.accepted.(type) {
	case *sock.Socket:
		return a, nil
	case error:
		return nil, a
	}
	return nil, nil
}

// An acceptor is what a listener's record has for Accept.
type acceptor struct {
	listener *sock.Socket
	atOnce   int
	paused   atomic.Bool
	pause    time.Duration // the latest, 0 after a success; under the slot's lock
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// accept takes connections of a listener that the kernel has reported. again says that it put the slot on
// the relook list.
//
// The slot's lock is held meanwhile: a removal waits until what was accepted is somebody's, so that none is
// lost. Whoever finds it locked leaves word for a look after that.
func (p *Port[K]) accept(w *call[K], s *slot[K], reg *record[K], index uint32, token uint64, out []Notification[K]) (n int, again bool) {
	a := reg.accept
	if _, ok := reg.tie.Use(); !ok {
		return 0, false // closed: its registration is about to end
	}
	defer reg.tie.Done() // after the unlock: it may be the one that closes
	if !s.mu.TryLock() {
		return 0, p.markRelook(s, index, token)
	}
	defer s.mu.Unlock()
	if was := s.word.Load(); !sameEpoch(was, token) || was&wEnabled == 0 || s.reg.Load() != reg {
		w.stripe.stale.Add(1)
		return 0, false
	}
	if a.paused.Load() {
		return 0, false
	}
	for n < len(out) && n < a.atOnce {
		if w.spare == nil {
			w.spare = new(sock.Socket)
		}
		err := a.listener.AcceptInto(w.spare)
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
			out[n] = Notification[K]{Key: reg.key, accepted: w.spare}
			w.spare = nil
			n++
			continue
		case errors.Is(err, net.ErrClosed):
			return n, false // by now, which ends the registration
		case sock.IsExhausted(err):
			known := a.pause != 0
			a.pause = min(max(2*a.pause, firstPause), longestPause)
			a.paused.Store(true)
			c := p.core // and not the port, which may be dropped
			time.AfterFunc(a.pause, func() { c.resume(index) })
			if known {
				return n, false
			}
		default:
			s.update(func(v uint64) uint64 { return v &^ wEnabled })
		}
		out[n] = Notification[K]{Key: reg.key, Events: EventErr, accepted: err}
		return n + 1, false
	}
	return n, p.markRelook(s, index, token)
}

// markRelook puts a registration on the relook list, if it is still that of a token and enabled.
func (p *Port[K]) markRelook(s *slot[K], index uint32, token uint64) bool {
	for {
		was := s.word.Load()
		if !sameEpoch(was, token) || was&wEnabled == 0 {
			return false
		}
		if was&wRelook != 0 {
			return true
		}
		if s.word.CompareAndSwap(was, was|wRelook) {
			p.pushRelook(s, index)
			return true
		}
	}
}

// resume tries a listener again after a pause.
func (p *Port[K]) resume(index uint32) {
	st := &p.core.stripes[0]
	if !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	s := p.table.lookup(index)
	if reg := s.reg.Load(); reg != nil && reg.accept != nil {
		reg.accept.paused.Store(false)
		p.askAgain(s, index, wEnabled|wAccept)
	}
}
