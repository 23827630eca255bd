package socknotify

import (
	"fmt"
	"runtime"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Accept delivers the connections of a listener as notifications of [KindAccepted] with this key (AcceptEx);
// [Notification.Accepted] returns the connected socket. Calling Accept again changes n. [sock.Detach] makes a *sock.Socket
// of a listener of package net.
//
// n is the number of accepts outstanding. A dequeuing call accepts up to n connections, and no more than its entries hold,
// before it makes way for other sockets. Nothing is accepted that is not dequeued: the rest waits in the listener's backlog.
//
// If descriptors or memory run out, one notification says so, with EventErr and the error from Accepted. Accepting then
// pauses for a time that grows up to a second, and resumes by itself. Any other failure is reported the same way and ends
// accepting; the listener should then be removed.
//
// The listener is removed like any registration, and its EventRemove is the last notification for the key. OpDisable pauses
// accepting, and Accept resumes it. The error is an *[OpError], [ErrInvalid] for a nil listener or an n below 1, or
// [ErrClosed].
func (p *Port[K]) Accept(listener *sock.Socket, key K, n int) error {
	switch {
	case p.port.Core.Closed.Load():
		return ErrClosed
	case listener == nil:
		return port.CallError("Accept", "a nil listener")
	case n < 1:
		return port.CallError("Accept", fmt.Sprintf("n must be at least 1, got %d", n))
	}
	w := p.port.Begin()
	if w == nil {
		return ErrClosed
	}
	r := Registration[K]{Conn: listener, Key: key, Filter: EventIn, Op: OpEnable, Trigger: TriggerLevel | TriggerPersistent}
	var e port.Entry
	r.entry(&e)
	e.Work = &port.Work{Socket: listener, Accept: &port.Acceptor{AtOnce: n}}
	p.port.Register(w, &e)
	p.port.Complete(w)
	p.port.End(w)
	runtime.KeepAlive(p)
	return r.Result
}
