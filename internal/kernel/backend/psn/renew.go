package psn

import "github.com/socknotify/socknotify/internal/kernel/backend"

// A verdict is the result of disabling and enabling an entry in one call. That polls its socket again and shows
// whether the socket is still registered.
type verdict uint8

const (
	renewed    verdict = iota
	unknown            // the call failed for a reason that says nothing about the socket
	suppressed         // the entry is disabled, and could not be enabled
	ended              // its socket was closed; the entry is forgotten
)

// judge returns the verdict for an outcome. If the socket was pinned, it must still have the number. If the system
// lacked memory for the first operation but not for the second, it is unknown which socket the second was for, until
// the program enables the entry again.
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
		p.gone(e, true) // the program names the socket, which it registers again
		return ended
	case p.transient(e.handle, o):
		return unknown
	case o.first == success:
		return suppressed
	}
	p.gone(e, o.last == success)
	return ended
}

// renew disables and enables an entry in a call of its own. disabled is set if the entry is disabled because the
// system refused to enable it; the reference forbids enabling before queued packets were dequeued. renew therefore
// dequeues them and tries again. Each try starts with disabling, because the socket may have been closed since.
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
			p.outdate(e, len(p.pending))
			return v
		case ended:
			return v
		case suppressed:
			disabled = true
		}
	}
	if disabled {
		return suppressed
	}
	return unknown
}
