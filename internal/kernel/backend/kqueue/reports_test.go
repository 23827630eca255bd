package kqueue

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

const (
	in     = backend.In
	urgent = backend.Urgent
	out    = backend.Out
	err    = backend.Err
	dead   = backend.Dead
	closed = backend.PeerClosed
)

// The error numbers of some system. The tests need only that they are not 0.
const (
	connRefused = 61
	connReset   = 54
)

func rd(flags, errno uint32, data int64) kevent {
	return kevent{fd: 5, filter: reads, flags: flags, fflags: errno, data: data}
}

func wr(flags, errno uint32) kevent {
	return kevent{fd: 5, filter: writes, flags: flags, fflags: errno}
}

// peeked returns a function that stands for a receive that peeks.
func peeked(m backend.Mask, sure bool) func(int) (backend.Mask, bool) {
	return func(int) (backend.Mask, bool) { return m, sure }
}

// The interests of the layer above. They always have PeerClosed, and Urgent along with In.
const (
	forNone = closed
	forIn   = in | urgent | closed
	forOut  = out | closed
	forBoth = in | urgent | out | closed
)

// The rows are situations in which systems differ, with the events that their kqueues are documented to
// report (platforms: peer half-close, unread data and FIN, both directions shut, ...).
func TestSituations(t *testing.T) {
	for _, c := range []struct {
		what     string
		interest backend.Mask
		events   []kevent
		peek     func(int) (backend.Mask, bool)
		want     backend.Mask
	}{
		{"data", forIn, []kevent{rd(0, 0, 3)}, nil, in | urgent},
		{"data and room", forBoth, []kevent{rd(0, 0, 3), wr(0, 0)}, nil, in | urgent | out},
		{"room and data", forBoth, []kevent{wr(0, 0), rd(0, 0, 3)}, nil, in | urgent | out},
		{"data, not asked for", forNone, []kevent{rd(0, 0, 1<<20)}, peeked(in, true), 0},
		{"data, only room asked for", forOut, []kevent{rd(0, 0, 1<<20)}, peeked(in, true), 0},
		{"over by now", forIn, []kevent{rd(0, 0, 0)}, peeked(0, true), 0},

		{"half-close, no data", forIn, []kevent{rd(evEOF, 0, 0)}, nil, in | closed},
		{"half-close, nothing asked for", forNone, []kevent{rd(evEOF, 0, 0)}, nil, closed},
		{"half-close, room", forBoth, []kevent{rd(evEOF, 0, 0), wr(0, 0)}, nil, in | out | closed},
		{"half-close behind unread data", forIn, []kevent{rd(evEOF, 0, 9)}, nil, in | closed},
		{"half-close behind unread data, not asked for", forOut, []kevent{rd(evEOF, 0, 9)}, nil, closed},
		{"seen by the peek first", forIn, []kevent{rd(0, 0, 0)}, peeked(in|closed, true), in | urgent | closed},

		{"both directions shut", forBoth, []kevent{rd(evEOF, 0, 0), wr(evEOF, 0)}, nil, in | out | closed | dead},
		{"both directions shut, reading asked for", forIn, []kevent{rd(evEOF, 0, 0)}, nil, in | closed},
		{"AF_UNIX peer closed", forBoth, []kevent{wr(evEOF, 0), rd(evEOF, 0, 0)}, nil, in | out | closed | dead},

		{"reset", forBoth, []kevent{rd(evEOF, connReset, 0), wr(evEOF, connReset)}, nil, in | out | closed | dead | err},
		{"reset behind unread data", forIn, []kevent{rd(evEOF, connReset, 4)}, nil, in | closed | dead | err},
		{"reset, nothing asked for", forNone, []kevent{rd(evEOF, connReset, 0)}, nil, closed | dead | err},
		{"reset, the writing knote first", forOut, []kevent{wr(evEOF, connReset)}, nil, out | closed | dead | err},
		{"reset between the two", forBoth, []kevent{rd(0, 0, 2), wr(evEOF, connReset)}, nil, in | urgent | out | closed | dead | err},
		{"reset, error read", forBoth, []kevent{rd(evEOF, 0, 0), wr(evEOF, 0)}, nil, in | out | closed | dead},
		{"error before the end", forIn, []kevent{rd(0, 0, 0)}, peeked(in|err|dead|closed, true), in | urgent | err | dead | closed},

		{"local SHUT_RD", forIn, []kevent{rd(evEOF, 0, 0)}, nil, in | closed},
		{"local SHUT_WR", forBoth, []kevent{wr(evEOF, 0)}, nil, out},
		{"connected", forOut, []kevent{wr(0, 0)}, nil, out},
		{"refused", forBoth, []kevent{wr(evEOF, connRefused), rd(evEOF, connRefused, 0)}, nil, in | out | closed | dead | err},
		{"refused, room asked for", forOut, []kevent{wr(evEOF, connRefused)}, nil, out | closed | dead | err},
		{"never started", forIn, []kevent{rd(0, 0, 0)}, peeked(dead, true), dead},

		{"listener", forIn, []kevent{rd(0, 0, 2)}, nil, in | urgent},
		{"listener that does not count", forIn, []kevent{rd(0, 0, 0)}, peeked(0, false), in | urgent},
		{"listener, nothing asked for", forNone, []kevent{rd(0, 0, 2)}, peeked(0, false), 0},

		{"datagram", forIn, []kevent{rd(0, 0, 100)}, nil, in | urgent},
		{"empty datagram", forIn, []kevent{rd(0, 0, 0)}, peeked(in, true), in | urgent},
		{"datagram, refused", forIn, []kevent{rd(0, 0, 0)}, peeked(err, true), err},
		{"datagram, refused, nothing asked for", forNone, []kevent{rd(0, 0, 0)}, peeked(err, true), err},
		{"datagram, refused, room", forOut, []kevent{wr(0, 0), rd(0, 0, 0)}, peeked(err, true), out | err},

		{"a change's error", forBoth, []kevent{rd(evError, 0, 2), wr(evError, 0)}, nil, 0},
		{"another filter", forBoth, []kevent{{fd: 5, filter: unknown}}, nil, 0},
	} {
		var tb table
		tb.made(backend.Add, 5, 77, c.interest)
		tb.round++
		if c.peek == nil {
			c.peek = func(int) (backend.Mask, bool) {
				t.Errorf("%s: peeked", c.what)
				return 0, false
			}
		}
		ready := make([]backend.Ready, 4)
		n := 0
		for _, k := range c.events {
			n = merged(&tb, ready, n, k, c.peek)
		}
		switch {
		case c.want == 0 && n == 0:
		case n != 1:
			t.Errorf("%s: %d reports", c.what, n)
		case ready[0] != (backend.Ready{Token: 77, Mask: c.want}):
			t.Errorf("%s: %+v; want mask %#x", c.what, ready[0], c.want)
		}
	}
}

// merged adds an event to ready as a queue does when ready has room.
func merged(t *table, ready []backend.Ready, n int, k kevent, peek func(int) (backend.Mask, bool)) int {
	m, at := t.merge(k, peek)
	switch {
	case m == 0:
	case at != none:
		ready[at].Mask |= m
	default:
		e := t.get(k.fd)
		e.at = int32(n)
		ready[n] = backend.Ready{Token: e.token, Mask: m}
		n++
	}
	return n
}

// The events of a socket are merged within a round, in any order, but not with those of another round.
func TestMerge(t *testing.T) {
	var tb table
	for fd := range 3 {
		tb.made(backend.Add, fd, uint64(100+fd), forBoth)
	}
	read := func(fd int) kevent { return kevent{fd: fd, filter: reads, data: 1} }
	write := func(fd int) kevent { return kevent{fd: fd, filter: writes} }
	ready := make([]backend.Ready, 8)
	harvest := func(events ...kevent) []backend.Ready {
		tb.round++
		n := 0
		for _, k := range events {
			n = merged(&tb, ready, n, k, nil)
		}
		return ready[:n]
	}

	got := harvest(read(2), read(0), write(1), write(0), read(9), write(2))
	want := []backend.Ready{{Token: 102, Mask: in | urgent | out}, {Token: 100, Mask: in | urgent | out}, {Token: 101, Mask: out}}
	if len(got) != len(want) {
		t.Fatalf("reports %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("report %d: %+v; want %+v", i, got[i], want[i])
		}
	}
	if got := harvest(write(0)); len(got) != 1 || got[0] != (backend.Ready{Token: 100, Mask: out}) {
		t.Errorf("next round: %+v", got)
	}
	// The ends of both directions mean Dead, also in two rounds, unless a change came in between.
	harvest(kevent{fd: 0, filter: reads, flags: evEOF})
	if got := harvest(kevent{fd: 0, filter: writes, flags: evEOF}); got[0].Mask != out|dead|closed {
		t.Errorf("the other end, a round later: %+v", got)
	}
	for _, action := range []backend.Action{backend.Set, backend.Suppress} {
		tb.made(backend.Set, 0, 100, forBoth)
		harvest(kevent{fd: 0, filter: reads, flags: evEOF})
		tb.made(action, 0, 100, forBoth)
		if got := harvest(kevent{fd: 0, filter: writes, flags: evEOF}); len(got) > 0 && got[0].Mask != out {
			t.Errorf("the other end, after a change: %+v", got)
		}
	}
	tb.made(backend.Set, 1, 201, forIn)
	if got := harvest(read(1)); got[0] != (backend.Ready{Token: 201, Mask: in | urgent}) {
		t.Errorf("after Set: %+v", got)
	}
	tb.made(backend.Delete, 1, 0, 0)
	if got := harvest(read(1)); len(got) != 0 {
		t.Errorf("after Delete: %+v", got)
	}
}
