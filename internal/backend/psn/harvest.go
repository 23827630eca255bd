package psn

import "github.com/socknotify/socknotify/internal/backend"

// harvest makes the call for the changes that are planned, and fills ready with what can be had.
func (p *Poller) harvest(ready []backend.Ready) int {
	if len(p.steps) > 0 && p.waiting() > 0 {
		p.flush(0) // what is in the stash is older than the changes
	}
	n := 0
	for {
		for n < len(ready) && p.waiting() > 0 {
			packet := p.unstash()
			n += p.take(packet.Entry, packet.old, &ready[n])
		}
		want := min(len(ready)-n, len(p.entries))
		if want == 0 && len(p.steps) == 0 {
			return n
		}
		got := p.flush(want)
		for i := range got {
			n += p.take(p.entries[i], false, &ready[n])
		}
		if got < want && len(p.steps) == 0 && p.waiting() == 0 {
			return n
		}
	}
}

// take turns a packet into a report, or into nothing. old says that it was dequeued some time ago. It
// returns how many reports it made.
func (p *Poller) take(packet Entry, old bool, ready *backend.Ready) int {
	if packet.Key == wakeKey {
		p.rang = true
		return 0
	}
	e := p.table.byKey(packet.Key)
	switch {
	case e == nil:
		return 0
	case packet.Transfer&eventRemove != 0:
		p.drop(e)
		return 0
	case e.state == leaving, e.planned:
		return 0 // it is over, or it is about to be enabled again for a packet before this one
	case !e.armed:
		e.loose = false
		return 0
	case e.loose, !e.fresh && (old || p.sys.Snapshots):
		p.again(e, packet)
		return 0
	}
	interest := backend.Mask(e.interest)
	m := report(packet.Transfer, interest)
	if m&(backend.PeerClosed|backend.Err) != 0 {
		now := p.sys.Look(e.handle)
		if m&^now&backend.Err != 0 && !e.fresh {
			p.again(e, packet) // it was read since
			return 0
		}
		// It was this socket that was looked at if it is registered now. It is disabled anyway.
		if o := p.one(e, opDisable, 0); !o.ok() && !p.transient(e.handle, o) {
			p.drop(e)
			return 0
		}
		m |= looked(now, interest)
	}
	e.armed = false
	*ready = backend.Ready{Token: e.token, Mask: m}
	return 1
}

// A stashed packet is one that was dequeued and has not been taken.
type stashed struct {
	Entry
	old bool // see take
}

func (p *Poller) waiting() int { return len(p.stash) - p.first }

func (p *Poller) unstash() stashed {
	packet := p.stash[p.first]
	p.first++
	if p.first == len(p.stash) {
		p.stash, p.first = p.stash[:0], 0
	}
	return packet
}

// drain moves what is queued into the stash, waiting up to timeout milliseconds for the first.
func (p *Poller) drain(timeout uint32) {
	for {
		n, code := p.sys.Process(p.port, nil, timeout, p.drained[:])
		if code != success {
			return
		}
		for _, packet := range p.drained[:n] {
			if packet.Transfer&eventRemove == 0 {
				p.stash = append(p.stash, stashed{packet, true})
			} else if e := p.table.byKey(packet.Key); e != nil {
				p.drop(e) // and with it, what lies before this in the stash
			}
		}
		if n < len(p.drained) {
			return
		}
		timeout = 0
	}
}
