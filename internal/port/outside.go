package port

import "github.com/socknotify/socknotify/internal/fdstate"

// A call that waits outside blocks in code of the caller rather than in this package: a thread of a C program, which
// would otherwise hold a goroutine that is locked to it. It is a leader or a follower like any other call (see waiters),
// with two differences. A leader waits for Descriptor to become readable, rather than in the backend's Park. And a call is
// woken by its alert, which the caller waits for too. A follower is sent its token first, so PollOutside finds it.
//
// An alert may come late, or to a caller that has been woken for another reason. PollOutside then finds nothing, and the
// caller waits again.

// Descriptor returns a descriptor that poll(2) reports readable as long as the backend has reports, or -1 if the backend
// has none. Calls cannot wait outside without one.
func (p *Port) Descriptor() int {
	if d, ok := p.Core.Poller.(interface{ Descriptor() int }); ok {
		return d.Descriptor()
	}
	return -1
}

// PollOutside polls for a call that waits outside. It is called first, and then each time that the caller was woken. If it
// finds nothing and returns no error, the caller must wait for the alert, and, if lead is true, for Descriptor to become
// readable. Otherwise the call no longer waits, and End may follow. over makes it return ErrTimeout rather than wait again.
//
// alert must not block, and must not call the port. It may be called after the call has ended.
func (p *Port) PollOutside(w *Call, out Entries, alert func(), over bool) (n int, lead bool, err error) {
	k, v := &p.Waiters, &w.waiter
	if v.alert != nil { // it has waited
		select {
		case <-v.wake:
			v.woken = true
		default:
		}
		k.wasChosen(v)
		n = p.dequeueAlone(w, out)
		switch {
		case n > 0:
		case p.Core.Closed.Load():
			err = ErrClosed
		case over:
			err = ErrTimeout
		}
		k.leave(v, n > 0 || err != nil)
		v.alert = nil
		if n > 0 || err != nil {
			return n, false, err
		}
	}
	v.alert = alert
	lead, open := k.add(v)
	if !open {
		v.alert = nil
		return 0, false, ErrClosed
	}
	k.wasChosen(v)
	if n = p.dequeue(w, out); n > 0 {
		k.leave(v, true)
		v.alert = nil
	}
	return n, lead, nil
}

// Blocked re-arms an edge registration of a raw handle on a backend without edges, because a receive or a send on it would
// have blocked. A sock.Socket does this by itself.
func (p *Port) Blocked(handle uintptr, recv bool) {
	if !p.Core.Edges {
		d := fdstate.Send
		if recv {
			d = fdstate.Recv
		}
		p.sockBlocked(handle, d)
	}
}

// Closing ends the registration of a raw handle that is about to be closed (G9). A sock.Socket does this by itself.
func (p *Port) Closing(handle uintptr) { p.sockClosing(nil, handle) }
