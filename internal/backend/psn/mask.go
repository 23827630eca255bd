package psn

import "github.com/socknotify/socknotify/internal/backend"

// filter translates an interest. There is no urgent data, and an interest in Dead (it has been told)
// needs nothing: without HANGUP in the filter a hang-up is no reason to report.
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

// report translates a packet's events for an interest. The end of a stream can be received, whether or
// not IN comes with HANGUP.
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

// looked is what a look adds to a report: the packet says neither whether a stream is dead, nor, perhaps,
// whether its hang-up was an abort.
func looked(look, interest backend.Mask) backend.Mask {
	return look & (interest | backend.Err | backend.Dead | backend.PeerClosed)
}

// WSAPoll's results.
const (
	pollErr    = 0x0001
	pollHup    = 0x0002
	pollNval   = 0x0004
	pollWrNorm = 0x0010
	pollRdNorm = 0x0100
	pollRdBand = 0x0200
)

// pollMask translates WSAPoll's results. A hang-up is the peer's half of the stream, or, with an error,
// the end of both: a stream has no other error than an abort or a connect that failed.
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
