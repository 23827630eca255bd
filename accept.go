package socknotify

import (
	"fmt"
	"runtime"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
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
	case p.port.Core.Closed.Load():
		return ErrClosed
	case listener == nil:
		return port.CallError("Accept", "a nil listener")
	case n < 1:
		return port.CallError("Accept", fmt.Sprintf("n: fewer than one accept outstanding (%d)", n))
	}
	w := p.port.Begin()
	if w == nil {
		return ErrClosed
	}
	r := Registration[K]{Conn: listener, Key: key, Filter: EventIn, Op: OpEnable, Trigger: TriggerLevel | TriggerPersistent}
	e := r.entry()
	e.Work = &port.Work{Socket: listener, Accept: &port.Acceptor{AtOnce: n}}
	p.port.Register(w, &e)
	p.port.Complete(w)
	p.port.End(w)
	runtime.KeepAlive(p)
	return r.Result
}
