package kqueue

import "github.com/socknotify/socknotify/internal/backend"

const none = -1

// merge returns what an event adds to the report of its socket, 0 for nothing, and where that report is in this
// round. pending tells what a receive would come to, if it can.
//
// The end of a direction is for good, so two ends are a death whenever they are reported, unless a change came in
// between, which has both looked at again.
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

// meaning is what one event says to an interest.
func meaning(k kevent, interest backend.Mask, pending func(fd int) (m backend.Mask, sure bool)) backend.Mask {
	var m backend.Mask
	switch {
	case k.flags&evEOF != 0:
		if k.filter == reads {
			m = interest&backend.In | backend.PeerClosed
		} else {
			m = interest & backend.Out // it would fail, but not block
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
	// Nothing to read, or nothing that was asked for: an error, an empty datagram, or a buffer that is
	// full; or a listener, of whose connections not every system counts.
	m, sure := pending(k.fd)
	if !sure {
		m = backend.In
	}
	if m&backend.In != 0 {
		m |= backend.Urgent
	}
	return m & (interest | backend.Err | backend.Dead | backend.PeerClosed)
}
