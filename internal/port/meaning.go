package port

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// meaning translates a report into the events of the contract, for a registration with this filter of a stream or of any
// other socket. Sentences E3 to E9 are implemented here and nowhere else.
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
			// The peer's direction of a dead stream is closed as well. Otherwise it was never started (E6).
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

func waiting(f Events) fdstate.Dir {
	var d fdstate.Dir
	if f&EventIn != 0 {
		d |= fdstate.Recv
	}
	if f&EventOut != 0 {
		d |= fdstate.Send
	}
	return d
}
