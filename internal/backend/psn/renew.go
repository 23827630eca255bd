package psn

import "github.com/socknotify/socknotify/internal/backend"

// A verdict is what came of disabling an entry and enabling it in one call, which has it look again, and
// tells whether its socket is still registered.
type verdict uint8

const (
	renewed  verdict = iota
	unknown          // that could not be done, for a reason that says nothing about the socket
	silenced         // it is disabled, and could not be enabled
	ended            // its socket was closed; the entry is forgotten
)

// judge makes a verdict of an outcome. A socket that was pinned must still have the number. Where the system
// was short of memory for the first operation and not for the second, which socket that was for cannot be told,
// until the program enables it again.
func (p *Poller) judge(e *entry, pinned bool, pin uintptr, o outcome) verdict {
	if pinned {
		same := p.sys.Same(e.handle, pin)
		p.sys.Unpin(pin)
		if !same {
			p.gone(e, true)
			return ended
		}
	}
	switch {
	case o.ok():
		return renewed
	case o.blind() && pinned:
		e.doubtful = true
		return renewed
	case o.blind():
		p.gone(e, true) // for the program, which names the socket: it is registered anew
		return ended
	case p.transient(e.handle, o):
		return unknown
	case o.first == success:
		return silenced
	}
	p.gone(e, o.last == success)
	return ended
}

// renew disables and enables an entry in a call of its own. disabled says that it is disabled already, having
// refused to be enabled: the reference forbids that before what is queued was dequeued. So that is dequeued,
// and it is tried again, each time from the start: the socket may have been closed since.
func (p *Poller) renew(e *entry, disabled bool) verdict {
	for range 4 {
		if disabled {
			p.drain(0)
		}
		pin, err := p.sys.Pin(e.handle)
		if err != nil {
			if !p.describes(e) {
				return ended
			}
			break
		}
		p.pair[0], p.pair[1] = e.registration(opDisable, 0), e.registration(opEnable, backend.Mask(e.interest))
		_, code := p.sys.Process(p.port, p.pair[:], 0, nil)
		switch v := p.judge(e, true, pin, outcomeOf(p.pair[:], code)); v {
		case renewed:
			p.outdate(e, len(p.stash))
			return v
		case ended:
			return v
		case silenced:
			disabled = true
		}
	}
	if disabled {
		return silenced
	}
	return unknown
}
