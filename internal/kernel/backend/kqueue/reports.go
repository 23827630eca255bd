package kqueue

import "github.com/socknotify/socknotify/internal/kernel/backend"

const none = -1

// merge returns the conditions that an event adds to the report of its socket, and the position of that report in
// this round. pending is described at type system.
//
// The end of a direction is final. So the ends of both directions mean Dead, also if they are reported in different
// rounds, unless a change came in between: a change makes the kernel poll both knotes again.
func (t *table) merge(k kevent, pending func(fd int) (m backend.Mask, sure bool)) (m backend.Mask, at int32) {
	e := t.get(k.fd)
	if e == nil || k.flags&evError != 0 || k.filter == unknown {
		return 0, none
	}
	if e.round != t.round {
		e.round, e.at = t.round, none
	}
	m = meaning(k, e.interest, pending)
	if k.flags&evEOF != 0 {
		if e.ends |= 1 << k.filter; e.ends == 1<<reads|1<<writes {
			m |= backend.Dead | backend.PeerClosed
		}
	}
	return m, e.at
}

// meaning returns the conditions that one event reports for an interest.
func meaning(k kevent, interest backend.Mask, pending func(fd int) (m backend.Mask, sure bool)) backend.Mask {
	var m backend.Mask
	switch {
	case k.flags&evEOF != 0:
		if k.filter == reads {
			m = interest&backend.In | backend.PeerClosed
		} else {
			m = interest & backend.Out // a send would fail, but not block
		}
		if k.fflags != 0 { // the socket's error
			m |= backend.Err | backend.Dead | backend.PeerClosed
		}
		return m
	case k.filter == writes:
		return interest & backend.Out
	case k.data > 0 && interest&backend.In != 0:
		return interest & (backend.In | backend.Urgent)
	}
	// There is no data, or In is not of interest. The event is about an error, an empty datagram or a full
	// buffer, or about a listener: not every system counts its connections.
	m, sure := pending(k.fd)
	if !sure {
		m = backend.In
	}
	if m&backend.In != 0 {
		m |= backend.Urgent
	}
	return m & (interest | backend.Err | backend.Dead | backend.PeerClosed)
}
