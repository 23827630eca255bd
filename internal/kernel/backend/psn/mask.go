package psn

import "github.com/socknotify/socknotify/internal/kernel/backend"

// filter translates an interest. Windows has no condition for urgent data. An interest in Dead, which means
// that Dead was reported, needs nothing: without HANGUP in the filter a hang-up is no reason to report.
func filter(m backend.Mask) uint16 {
	var f uint16
	if m&backend.In != 0 {
		f |= eventIn
	}
	if m&backend.Out != 0 {
		f |= eventOut
	}
	if m&backend.PeerClosed != 0 {
		f |= eventHangup
	}
	return f
}

// report translates the events of a packet for an interest. HANGUP implies In, because the end of a stream
// can be received, also if the packet does not have IN.
func report(events uint32, interest backend.Mask) backend.Mask {
	var m backend.Mask
	if events&eventIn != 0 {
		m |= backend.In
	}
	if events&eventOut != 0 {
		m |= backend.Out
	}
	if events&eventHangup != 0 {
		m |= backend.PeerClosed | interest&backend.In
	}
	if events&eventErr != 0 {
		m |= backend.Err
	}
	return m
}

// polled returns the conditions of a poll that are added to a report. The packet does not show whether a stream
// is dead, and may not show whether its hang-up was an abort.
func polled(now, interest backend.Mask) backend.Mask {
	return now & (interest | backend.Err | backend.Dead | backend.PeerClosed)
}

// The results of WSAPoll.
const (
	pollErr    = 0x0001
	pollHup    = 0x0002
	pollNval   = 0x0004
	pollWrNorm = 0x0010
	pollRdNorm = 0x0100
	pollRdBand = 0x0200
)

// pollMask translates the results of WSAPoll. A hang-up is about the peer's direction, or with an error about
// both directions: a stream has no other errors than an abort and a failed connect.
func pollMask(revents int16, kind backend.Kind) backend.Mask {
	if revents&pollNval != 0 {
		return 0
	}
	var m backend.Mask
	if revents&pollRdNorm != 0 {
		m |= backend.In
	}
	if revents&pollRdBand != 0 {
		m |= backend.Urgent
	}
	if revents&pollWrNorm != 0 {
		m |= backend.Out
	}
	if revents&pollErr != 0 {
		m |= backend.Err
	}
	if kind == backend.Stream {
		if revents&pollHup != 0 {
			m |= backend.PeerClosed | backend.In
		}
		if revents&pollErr != 0 {
			m |= backend.Dead | backend.PeerClosed | backend.In
		}
	}
	return m
}
