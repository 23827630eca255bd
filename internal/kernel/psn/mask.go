package psn

import "github.com/socknotify/socknotify/internal/kernel"

// filter translates an interest. There is no urgent data, and an interest in Dead (it has been told)
// needs nothing: without HANGUP in the filter a hang-up is no reason to report.
func filter(m kernel.Mask) uint16 {
	var f uint16
	if m&kernel.In != 0 {
		f |= eventIn
	}
	if m&kernel.Out != 0 {
		f |= eventOut
	}
	if m&kernel.PeerClosed != 0 {
		f |= eventHangup
	}
	return f
}

// report translates a packet's events for an interest. The end of a stream can be received, whether or
// not IN comes with HANGUP.
func report(events uint32, interest kernel.Mask) kernel.Mask {
	var m kernel.Mask
	if events&eventIn != 0 {
		m |= kernel.In
	}
	if events&eventOut != 0 {
		m |= kernel.Out
	}
	if events&eventHangup != 0 {
		m |= kernel.PeerClosed | interest&kernel.In
	}
	if events&eventErr != 0 {
		m |= kernel.Err
	}
	return m
}

// looked is what a look adds to a report: the packet says neither whether a stream is dead, nor, perhaps,
// whether its hang-up was an abort.
func looked(look, interest kernel.Mask) kernel.Mask {
	return look & (interest | kernel.Err | kernel.Dead | kernel.PeerClosed)
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
func pollMask(revents int16, kind kernel.Kind) kernel.Mask {
	if revents&pollNval != 0 {
		return 0
	}
	var m kernel.Mask
	if revents&pollRdNorm != 0 {
		m |= kernel.In
	}
	if revents&pollRdBand != 0 {
		m |= kernel.Urgent
	}
	if revents&pollWrNorm != 0 {
		m |= kernel.Out
	}
	if revents&pollErr != 0 {
		m |= kernel.Err
	}
	if kind == kernel.Stream {
		if revents&pollHup != 0 {
			m |= kernel.PeerClosed | kernel.In
		}
		if revents&pollErr != 0 {
			m |= kernel.Dead | kernel.PeerClosed | kernel.In
		}
	}
	return m
}
