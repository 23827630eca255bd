package afd

import "github.com/socknotify/socknotify/internal/kernel/backend"

// The events that AFD polls for. CONNECT (0x40) is never asked for, because it remains set.
const (
	receive     = 0x001 // data or a datagram, but not the end of a stream
	expedited   = 0x002 // urgent data
	send        = 0x004 // a send would not block; a connect has completed
	disconnect  = 0x008 // the peer has shut its direction
	abort       = 0x010 // the connection was reset
	localClose  = 0x020 // the last handle was closed; always reported
	accept      = 0x080 // a connection is pending
	connectFail = 0x100 // a connect failed; set until the next connect
)

// interest translates an interest. AFD does not report the end of a stream or a reset as a receive, so both are asked
// for along with receive.
func interest(m backend.Mask) uint32 {
	e := uint32(abort | connectFail | localClose)
	if m&backend.In != 0 {
		e |= receive | accept | disconnect
	}
	if m&backend.Urgent != 0 {
		e |= expedited
	}
	if m&backend.Out != 0 {
		e |= send
	}
	if m&backend.PeerClosed != 0 {
		e |= disconnect
	}
	return e
}

// mask translates the events that AFD found. stream is set for a socket that can be hung up. A failed connect does not
// mean PeerClosed, because there is no peer. On a datagram socket it is a temporary error, about a datagram that was
// sent.
func mask(events uint32, stream bool) backend.Mask {
	var m backend.Mask
	if events&(receive|accept|disconnect) != 0 {
		m |= backend.In
	}
	if events&expedited != 0 {
		m |= backend.Urgent
	}
	if events&send != 0 {
		m |= backend.Out
	}
	if events&(abort|connectFail) != 0 {
		m |= backend.Err
	}
	if !stream {
		return m
	}
	if events&disconnect != 0 {
		m |= backend.PeerClosed
	}
	if events&abort != 0 {
		m |= backend.In | backend.PeerClosed | backend.Dead
	}
	if events&connectFail != 0 {
		m |= backend.Dead
	}
	return m
}
