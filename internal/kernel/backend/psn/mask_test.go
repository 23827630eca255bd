package psn

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

const (
	in     = backend.In
	out    = backend.Out
	bad    = backend.Err
	dead   = backend.Dead
	closed = backend.PeerClosed
)

func TestFilter(t *testing.T) {
	for m, want := range map[backend.Mask]uint16{
		0:                                      0,
		in:                                     0x01,
		in | backend.Urgent:                    0x01,
		out:                                    0x02,
		closed:                                 0x04,
		in | out | closed:                      0x07,
		bad | dead:                             0, // ERR is always on, and Dead means that Dead was reported
		in | out | backend.Urgent | bad | dead: 0x03,
	} {
		if got := filter(m); got != want {
			t.Errorf("filter(%#x) = %#x; want %#x", m, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		events         uint32
		interest, want backend.Mask
	}{
		{0x00, in, 0},
		{0x01, in, in},
		{0x02, out, out},
		{0x03, in | out | closed, in | out},
		{0x04, closed, closed},
		{0x04, in | closed, in | closed}, // the end of a stream can be received
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

func TestPolled(t *testing.T) {
	all := in | out | bad | dead | closed
	for interest, want := range map[backend.Mask]backend.Mask{
		0:        bad | dead | closed,
		in:       in | bad | dead | closed,
		in | out: all,
	} {
		if got := polled(all, interest); got != want {
			t.Errorf("polled(%#x) = %#x; want %#x", interest, got, want)
		}
	}
}

func TestPollMask(t *testing.T) {
	for _, c := range []struct {
		revents int16
		kind    backend.Kind
		want    backend.Mask
	}{
		{0, backend.Stream, 0},
		{pollRdNorm, backend.Stream, in},
		{pollRdNorm | pollWrNorm, backend.Stream, in | out},
		{pollRdBand, backend.Stream, backend.Urgent},
		{pollHup | pollWrNorm, backend.Stream, in | out | closed},
		{pollHup | pollErr, backend.Stream, in | bad | dead | closed},
		{pollErr | pollWrNorm, backend.Stream, in | out | bad | dead | closed},
		{pollErr, backend.Datagram, bad},
		{pollHup | pollRdNorm, backend.Datagram, in},
		{pollRdNorm, backend.Listener, in},
		{pollNval | pollRdNorm, backend.Stream, 0},
	} {
		if got := pollMask(c.revents, c.kind); got != c.want {
			t.Errorf("pollMask(%#x, %d) = %#x; want %#x", c.revents, c.kind, got, c.want)
		}
	}
}
