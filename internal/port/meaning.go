package port

import "github.com/socknotify/socknotify/internal/kernel"

// meaning translates what a kernel reports into the events of the contract, for a registration
// with this filter on a stream (true) or on anything that cannot be hung up on. It is the one
// place that E3 to E9 live in.
func meaning(m kernel.Mask, filter Events, stream bool) Events {
	var e Events
	if m&kernel.In != 0 {
		e |= EventIn
	}
	if m&kernel.Out != 0 {
		e |= EventOut
	}
	if m&kernel.Err != 0 {
		e |= EventErr
	}
	if stream && m&(kernel.Dead|kernel.PeerClosed) != 0 {
		if m&kernel.PeerClosed == 0 && m&kernel.Err == 0 {
			// Every dead stream has its peer's direction shut as well. One that has not was
			// never started (E6).
			return EventNone
		}
		e |= EventHangup | EventIn // end of stream can be received (E3)
		if m&(kernel.Dead|kernel.Err) == kernel.Dead|kernel.Err {
			e &^= EventOut // E5, E7
		}
	}
	if !stream && m&kernel.Dead != 0 {
		e |= EventIn // of a listener that was shut down, whose accept fails (E4)
	}
	return e & (filter | EventErr)
}
