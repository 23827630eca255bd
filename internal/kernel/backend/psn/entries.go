package psn

import "github.com/socknotify/socknotify/internal/kernel/backend"

// An entry is the backend's state of a registration. It fills 32 bytes.
type entry struct {
	handle   uintptr
	key      uintptr
	token    uint64
	interest uint8 // a backend.Mask
	state    state
	armed    bool // a report is due when a condition holds
	stale    bool // a packet of an earlier arming may still come
	fresh    bool // the next packet was requested by the current call
	planned  bool // a planned step uses it
	doubtful bool // it may have registered another socket: see judge
}

type state uint8

const (
	free    state = iota
	watched       // registered, as far as the backend knows
	leaving       // removed, but the packet of the removal was not dequeued yet
)

// wakeKey is the key of the packets that end a Park. No entry has it.
const wakeKey = 0

// drop forgets an entry. Later packets with its key are dropped.
func (p *Poller) drop(e *entry) {
	if p.leaving[e.handle] == e {
		delete(p.leaving, e.handle)
	}
	p.table.drop(e)
}

// leave keeps a removed entry until the packet of the removal is dequeued. If the socket is closed first, that
// packet may not come, so there is at most one such entry per handle.
func (p *Poller) leave(e *entry) {
	if old := p.leaving[e.handle]; old != nil {
		p.drop(old)
	}
	p.table.leave(e)
	p.leaving[e.handle] = e
	e.state, e.armed = leaving, false
}

// arm records that a change has enabled an entry.
func (e *entry) arm(c *backend.Change) {
	e.stale = e.stale || e.armed
	e.token, e.interest, e.armed, e.fresh = c.Token, uint8(c.Interest), true, false
}

// suppress records that a change has disabled an entry.
func (e *entry) suppress(c *backend.Change) {
	e.stale = e.stale || e.armed
	e.token, e.armed = c.Token, false
}

// outdate drops an entry's pending packets up to a mark, which were dequeued before the entry was enabled.
func (p *Poller) outdate(e *entry, mark int) {
	for i := p.first; i < mark; i++ {
		if p.pending[i].Key == e.key {
			p.pending[i].Key = noKey
		}
	}
}

// noKey is the key of no entry, because its generation is 0.
const noKey = 1

func (e *entry) registration(op uint8, interest backend.Mask) Registration {
	r := Registration{Socket: e.handle, Key: e.key, Op: op}
	if op == opEnable {
		r.Filter, r.Trigger = filter(interest), trigger
	}
	return r
}

// one performs one operation on an entry.
func (p *Poller) one(e *entry, op uint8, interest backend.Mask) outcome {
	p.pair[0] = e.registration(op, interest)
	_, code := p.sys.Process(p.port, p.pair[:1], 0, nil)
	return outcomeOf(p.pair[:1], code)
}

// An outcome has the results of the registrations of one step.
type outcome struct {
	first, last uint32
	whole       bool // the call failed, and has changed nothing
}

func outcomeOf(regs []Registration, code uint32) outcome {
	if failed(code) {
		return outcome{code, code, true}
	}
	return outcome{regs[0].Result, regs[len(regs)-1].Result, false}
}

// blind reports whether the entry was enabled, but it is unknown whether it was registered before.
func (o outcome) blind() bool { return !o.whole && exhausted(o.first) && o.last == success }

func (o outcome) ok() bool { return o.first == success && o.last == success }

// watches reports whether an entry's socket is still registered, and forgets the entry if it is not. A report
// that is due remains due.
func (p *Poller) watches(e *entry) bool {
	if !e.armed {
		o := p.one(e, opDisable, 0)
		if o.ok() || p.transient(e.handle, o) {
			return true
		}
		p.drop(e)
		return false
	}
	e.stale = true
	switch p.renew(e, false) {
	case ended:
		return false
	case suppressed:
		p.ask(e)
	}
	return true // also if it is unknown
}

// describes reports whether an entry's handle is a socket at all, and forgets the entry if it is not.
func (p *Poller) describes(e *entry) bool {
	_, err := p.sys.Describe(e.handle)
	if err != nil {
		p.drop(e)
	}
	return err == nil
}

// transient reports whether an outcome is a failure that says nothing about the registration.
func (p *Poller) transient(handle uintptr, o outcome) bool {
	if exhausted(o.first) {
		return true
	}
	if !o.whole {
		return false
	}
	_, err := p.sys.Describe(handle)
	return err == nil
}

// gone forgets an entry whose socket is no longer registered. registered is set if the check has registered the
// socket that has the number now; gone removes that registration.
func (p *Poller) gone(e *entry, registered bool) {
	const tries = 100 // while there is no memory for it
	for range tries {
		if !registered {
			break
		}
		o := p.one(e, opRemove, 0)
		if o.ok() {
			p.leave(e)
			return
		}
		registered = exhausted(o.first)
	}
	p.drop(e)
}

// ask makes a report without conditions for an entry that cannot be enabled. The layer above then polls again
// with a Set.
func (p *Poller) ask(e *entry) {
	e.stale, e.fresh = false, true
	p.pending = append(p.pending, pendingPacket{Entry: Entry{Key: e.key}})
}
