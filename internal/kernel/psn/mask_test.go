package psn

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel"
)

const (
	in     = kernel.In
	out    = kernel.Out
	bad    = kernel.Err
	dead   = kernel.Dead
	closed = kernel.PeerClosed
)

func TestFilter(t *testing.T) {
	for m, want := range map[kernel.Mask]uint16{
		0:                                     0,
		in:                                    0x01,
		in | kernel.Urgent:                    0x01,
		out:                                   0x02,
		closed:                                0x04,
		in | out | closed:                     0x07,
		bad | dead:                            0, // ERR is always on, and Dead says what has been told
		in | out | kernel.Urgent | bad | dead: 0x03,
	} {
		if got := filter(m); got != want {
			t.Errorf("filter(%#x) = %#x; want %#x", m, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		events         uint32
		interest, want kernel.Mask
	}{
		{0x00, in, 0},
		{0x01, in, in},
		{0x02, out, out},
		{0x03, in | out | closed, in | out},
		{0x04, closed, closed},
		{0x04, in | closed, in | closed}, // end of stream can be received
		{0x05, in | closed, in | closed},
		{0x40, in, bad},
		{0x44, in | closed, in | closed | bad},
		{0x42, out, out | bad},
	} {
		if got := report(c.events, c.interest); got != c.want {
			t.Errorf("report(%#x, %#x) = %#x; want %#x", c.events, c.interest, got, c.want)
		}
	}
}

func TestLooked(t *testing.T) {
	all := in | out | bad | dead | closed
	for interest, want := range map[kernel.Mask]kernel.Mask{
		0:        bad | dead | closed,
		in:       in | bad | dead | closed,
		in | out: all,
	} {
		if got := looked(all, interest); got != want {
			t.Errorf("looked(%#x) = %#x; want %#x", interest, got, want)
		}
	}
}

func TestPollMask(t *testing.T) {
	for _, c := range []struct {
		revents int16
		kind    kernel.Kind
		want    kernel.Mask
	}{
		{0, kernel.Stream, 0},
		{pollRdNorm, kernel.Stream, in},
		{pollRdNorm | pollWrNorm, kernel.Stream, in | out},
		{pollRdBand, kernel.Stream, kernel.Urgent},
		{pollHup | pollWrNorm, kernel.Stream, in | out | closed},
		{pollHup | pollErr, kernel.Stream, in | bad | dead | closed},
		{pollErr | pollWrNorm, kernel.Stream, in | out | bad | dead | closed},
		{pollErr, kernel.Datagram, bad},
		{pollHup | pollRdNorm, kernel.Datagram, in},
		{pollRdNorm, kernel.Listener, in},
		{pollNval | pollRdNorm, kernel.Stream, 0},
	} {
		if got := pollMask(c.revents, c.kind); got != c.want {
			t.Errorf("pollMask(%#x, %d) = %#x; want %#x", c.revents, c.kind, got, c.want)
		}
	}
}
