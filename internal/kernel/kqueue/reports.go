package kqueue

import "github.com/socknotify/socknotify/internal/kernel"

const none = -1

// merge turns an event into a report, or adds it to the one that the same socket has in this round. It
// returns how many of ready are reports now. pending tells what a receive would come to, if it can.
func (t *table) merge(ready []kernel.Ready, n int, k kevent, pending func(fd int) (m kernel.Mask, sure bool)) int {
	e := t.get(k.fd)
	if e == nil || k.flags&evError != 0 || k.filter == unknown {
		return n
	}
	if e.round != t.round {
		e.round, e.at, e.ends = t.round, none, 0
	}
	m := meaning(k, e.interest, pending)
	if k.flags&evEOF != 0 {
		if e.ends |= 1 << k.filter; e.ends == 1<<reads|1<<writes {
			m |= kernel.Dead
		}
	}
	switch {
	case m == 0:
	case e.at != none:
		ready[e.at].Mask |= m
	default:
		ready[n] = kernel.Ready{Token: e.token, Mask: m}
		e.at = int32(n)
		n++
	}
	return n
}

// meaning is what one event says to an interest.
func meaning(k kevent, interest kernel.Mask, pending func(fd int) (m kernel.Mask, sure bool)) kernel.Mask {
	var m kernel.Mask
	switch {
	case k.flags&evEOF != 0:
		if k.filter == reads {
			m = interest&kernel.In | kernel.PeerClosed
		} else {
			m = interest & kernel.Out // it would fail, but not block
		}
		if k.fflags != 0 { // the socket's error
			m |= kernel.Err | kernel.Dead | kernel.PeerClosed
		}
		return m
	case k.filter == writes:
		return interest & kernel.Out
	case k.data > 0 && interest&kernel.In != 0:
		return interest & (kernel.In | kernel.Urgent)
	}
	// Nothing to read, or nothing that was asked for: an error, an empty datagram, or a buffer that is
	// full; or a listener, of whose connections not every system counts.
	m, sure := pending(k.fd)
	if !sure {
		m = kernel.In
	}
	if m&kernel.In != 0 {
		m |= kernel.Urgent
	}
	return m & (interest | kernel.Err | kernel.Dead | kernel.PeerClosed)
}
