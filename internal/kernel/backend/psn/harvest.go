package psn

import "github.com/socknotify/socknotify/internal/kernel/backend"

// harvest makes the call for the planned changes, and fills ready with the available reports.
func (p *Poller) harvest(ready []backend.Ready) int {
	if len(p.steps) > 0 && p.waiting() > 0 {
		p.flush(0) // pending packets are older than the changes
	}
	n := 0
	for {
		for n < len(ready) && p.waiting() > 0 {
			packet := p.takePending()
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

// take turns a packet into a report, if it makes one, and returns the number of reports, 0 or 1. old is set if the
// packet was dequeued by an earlier call.
func (p *Poller) take(packet Entry, old bool, ready *backend.Ready) int {
	if packet.Key == wakeKey {
		p.wakeTaken = true
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
		return 0 // it has ended, or is about to be enabled again because of an earlier packet
	case !e.armed:
		e.stale = false
		return 0
	case e.stale, !e.fresh && (old || p.sys.Snapshots):
		p.again(e, packet)
		return 0
	}
	interest := backend.Mask(e.interest)
	m := report(packet.Transfer, interest)
	if m&(backend.PeerClosed|backend.Err) != 0 {
		now := p.sys.PollOne(e.handle)
		if m&^now&backend.Err != 0 && !e.fresh {
			p.again(e, packet) // the error was read since
			return 0
		}
		// If the socket is registered now, then PollOne has polled this socket. Disabling changes nothing: it is disabled.
		if o := p.one(e, opDisable, 0); !o.ok() && !p.transient(e.handle, o) {
			p.drop(e)
			return 0
		}
		m |= polled(now, interest)
	}
	e.armed = false
	*ready = backend.Ready{Token: e.token, Mask: m}
	return 1
}

// A pendingPacket was dequeued and has not been taken.
type pendingPacket struct {
	Entry
	old bool // see take
}

func (p *Poller) waiting() int { return len(p.pending) - p.first }

func (p *Poller) takePending() pendingPacket {
	packet := p.pending[p.first]
	p.first++
	if p.first == len(p.pending) {
		p.pending, p.first = p.pending[:0], 0
	}
	return packet
}

// drain moves queued packets to p.pending. It waits up to timeout milliseconds for the first.
func (p *Poller) drain(timeout uint32) {
	for {
		n, code := p.sys.Process(p.port, nil, timeout, p.drained[:])
		if code != success {
			return
		}
		for _, packet := range p.drained[:n] {
			if packet.Transfer&eventRemove == 0 {
				p.pending = append(p.pending, pendingPacket{packet, true})
			} else if e := p.table.byKey(packet.Key); e != nil {
				p.drop(e) // and so its earlier pending packets
			}
		}
		if n < len(p.drained) {
			return
		}
		timeout = 0
	}
}
