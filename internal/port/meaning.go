package port

import "github.com/socknotify/socknotify/internal/backend"

// meaning translates what a kernel reports into the events of the contract, for a registration
// with this filter on a stream (true) or on anything that cannot be hung up on. It is the one
// place that E3 to E9 live in.
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
			// Every dead stream has its peer's direction shut as well. One that has not was
			// never started (E6).
			return EventNone
		}
		e |= EventHangup | EventIn // end of stream can be received (E3)
		if m&(backend.Dead|backend.Err) == backend.Dead|backend.Err {
			e &^= EventOut // E5, E7
		}
	}
	if !stream && m&backend.Dead != 0 {
		e |= EventIn // of a listener that was shut down, whose accept fails (E4)
	}
	return e & (filter | EventErr)
}
