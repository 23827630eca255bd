package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/sock"
)

// X3: accepted connections as notifications.
var acceptCases = map[string]func(*env){
	"X3/OnlyWhatIsDequeued": acceptBackpressure,
	"X3/RemoveUnderLoad":    acceptRemoveUnderLoad,
}

func (e *env) accept(p *port, l *socket, k any, n int) {
	e.Helper()
	if err := p.Accept(l.Socket, k, n); err != nil {
		e.Fatalf("Accept: %v", err)
	}
}

// dial connects n clients, and waits until the listener has them.
func (e *env) dial(l *socket, n int) []*socket {
	e.Helper()
	clients := make([]*socket, n)
	for i := range clients {
		clients[i] = e.fresh()
		e.connect(clients[i], l.LocalAddr())
	}
	for _, c := range clients {
		settle(e, c, stateOut)
	}
	if n > 0 {
		settle(e, l, stateIn)
	}
	return clients
}

// accepted takes the connection out of a notification.
func (e *env) accepted(got note, k any) *socket {
	e.Helper()
	s, err := got.Accepted()
	if got.Key != k || got.Events != socknotify.EventNone || got.Kind() == socknotify.KindPosted || s == nil || err != nil {
		e.Fatalf("notification of %v: %v, posted %t, accepted %v, %v; want a connection for %v",
			got.Key, got.Events, got.Kind() == socknotify.KindPosted, s, err, k)
	}
	return e.keep(s, nil)
}

// acceptBackpressure makes connections that are not dequeued.
func acceptBackpressure(e *env) {
	const n, clients = 2, 7
	p := e.port()
	l := e.listener()
	e.accept(p, l, "l", n)
	e.dial(l, clients)
	e.do(p) // a call that does not dequeue
	if got := p.Stats().Accepted; got != 0 {
		e.Errorf("%d accepted before anybody dequeued", got)
	}
	before := len(handles.List())
	var one [1]note
	k, err := p.Process(nil, one[:], 0)
	if k == 0 && tellsLate {
		k, err = p.Process(nil, one[:], limit)
	}
	if k != 1 || err != nil {
		e.Fatalf("Wait = %d, %v", k, err)
	}
	e.accepted(one[0], "l")
	if opened := len(handles.List()) - before; opened > 1+n {
		e.Errorf("%d descriptors opened for one entry and %d outstanding", opened, n)
	}
	for range clients - 1 {
		e.accepted(e.next(p), "l")
	}
	e.none(p)
}

// acceptRemoveUnderLoad removes while waiters accept: each connection is either delivered, before the
// EventRemove, or still the listener's.
func acceptRemoveUnderLoad(e *env) {
	for range 20 {
		p := e.port()
		l := e.listener()
		var got, removed atomic.Int32
		stop := e.workers(p, 3, 2, func(nt note) {
			if nt.Events == gone {
				removed.Add(1)
				return
			}
			if s, _ := nt.Accepted(); s != nil {
				got.Add(1)
				s.Close()
			}
		})
		e.accept(p, l, "l", 2)
		const clients = 8
		dialed := async(func() error {
			for range clients {
				c, err := sock.New(sock.TCP4)
				if err != nil {
					return err
				}
				if err := c.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
					return err
				}
				e.Cleanup(func() { c.Close() })
			}
			return nil
		})
		e.do(p, remove(l))
		e.end(dialed, "the clients")
		e.until("EventRemove", func() bool { return removed.Load() == 1 })
		left := 0
		e.until("the others are in the backlog", func() bool {
			if s, err := l.Accept(); err == nil {
				s.Close()
				left++
			}
			return int(got.Load())+left == clients
		})
		stop()
	}
}
