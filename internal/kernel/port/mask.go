package port

import (
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// meaning translates a report into the events of the contract, for a registration with this filter
// of a stream or of any other socket. Sentences E3 to E9 are implemented here and nowhere else.
func meaning(m backend.Mask, filter Events, stream bool) Events {
	var e Events
	if m&backend.In != 0 {
		e |= EventIn
	}
	if m&backend.Out != 0 {
		e |= EventOut
	}
	if m&backend.Err != 0 {
		e |= EventErr
	}
	if stream && m&(backend.Dead|backend.PeerClosed) != 0 {
		if m&backend.PeerClosed == 0 && m&backend.Err == 0 {
			// The peer's direction of a dead stream is closed as well. Otherwise it was never
			// started (E6).
			return EventNone
		}
		e |= EventHangup | EventIn // the end of the stream can be received (E3)
		if m&(backend.Dead|backend.Err) == backend.Dead|backend.Err {
			e &^= EventOut // E5, E7
		}
	}
	if !stream && m&backend.Dead != 0 {
		e |= EventIn // a listener that was shut down: its accept fails (E4)
	}
	return e & (filter | EventErr)
}

// moved returns the directions that a report concerns.
func moved(m backend.Mask) fdstate.Dir {
	var d fdstate.Dir
	if m&(backend.In|backend.Urgent|backend.PeerClosed|backend.Dead|backend.Err) != 0 {
		d |= fdstate.Recv
	}
	if m&(backend.Out|backend.Dead|backend.Err) != 0 {
		d |= fdstate.Send
	}
	return d
}

// directions returns the directions in which a socket must be drained for a filter. A hang-up and
// an error are found by receiving, so a filter with neither direction needs that one.
func directions(filter Events) fdstate.Dir {
	var d fdstate.Dir
	if filter&EventOut != 0 {
		d |= fdstate.Send
	}
	if filter&(EventIn|EventHangup) != 0 || d == 0 {
		d |= fdstate.Recv
	}
	return d
}

// suppressedBy returns the directions in which a backend without edges reports again only after the
// socket was drained. An error suppresses both until it has been received, or sent into.
func suppressedBy(m backend.Mask) fdstate.Dir {
	var d fdstate.Dir
	if m&(backend.In|backend.Err) != 0 {
		d |= fdstate.Recv
	}
	if m&(backend.Out|backend.Err) != 0 {
		d |= fdstate.Send
	}
	return d
}

// repeats reports whether a strict edge has reported all of these events already. An end of stream
// has been reported once PeerClosed has, although it can still be received.
func repeats(e Events, word uint64) bool {
	m := reported(word)
	if m&backend.In != 0 {
		e &^= EventIn
	}
	if m&backend.Out != 0 {
		e &^= EventOut
	}
	if m&(backend.PeerClosed|backend.Dead) != 0 {
		e &^= EventHangup
	}
	return e == EventNone
}

// notify advances the generation of a socket for a notification with the conditions m.
func notify(t *fdstate.FD, m backend.Mask) fdstate.NewGeneration {
	persists := m&(backend.Dead|backend.Err) != 0
	return t.Advance(persists || m&(backend.Urgent|backend.PeerClosed) != 0, persists)
}

// interest returns what the backend must watch for a filter. PeerClosed is always included, because
// it tells a dead stream from one that was never started. Urgent is included with In, because
// urgent data ends a receive early: a receive that is short of its buffer then does not mean that
// the socket is drained.
func interest(filter Events) backend.Mask {
	m := backend.PeerClosed
	if filter&EventIn != 0 {
		m |= backend.In | backend.Urgent
	}
	if filter&EventOut != 0 {
		m |= backend.Out
	}
	return m
}

// reportedBits returns the word's bits for conditions that a backend without edges would report
// again and again: an edge registration has been notified of them, or its filter does not include
// them.
func reportedBits(m backend.Mask) uint64 {
	return uint64(m&(backend.In|backend.Out|backend.PeerClosed|backend.Dead)) << wReported
}

// reported returns the conditions whose reportedBits a word has.
func reported(word uint64) backend.Mask { return backend.Mask(word >> wReported & wReportedMask) }

// unreported returns what the backend must still watch for a word.
func unreported(word uint64) backend.Mask {
	m, known := interest(wordFilter(word)), reported(word)
	if known&backend.In != 0 {
		m &^= backend.Urgent
	}
	return m&^known | known&backend.Dead
}
