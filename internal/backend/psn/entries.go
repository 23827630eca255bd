package psn

import "github.com/socknotify/socknotify/internal/backend"

// An entry is what the backend knows of a registration. It fills 32 bytes.
type entry struct {
	handle   uintptr
	key      uintptr
	token    uint64
	interest uint8 // a backend.Mask
	state    state
	armed    bool // a report is due when something holds
	loose    bool // a packet of an earlier arming may still come
	fresh    bool // the packet that comes next was asked for just now
	planned  bool // a step is about it
	doubtful bool // it may have got another socket registered: see judge
}

type state uint8

const (
	free    state = iota
	watched       // registered, as far as is known
	leaving       // removed, and the packet that says so was not dequeued
)

// wakeKey is the key of the packets that end a Park. No entry has it.
const wakeKey = 0

// drop forgets an entry. What may still come with its key is dropped.
func (p *Poller) drop(e *entry) {
	if p.leaving[e.handle] == e {
		delete(p.leaving, e.handle)
	}
	p.table.drop(e)
}

// leave keeps an entry that was removed until the packet that says so is dequeued. It may never come, if
// the socket is closed first, so there is one such entry per handle.
func (p *Poller) leave(e *entry) {
	if old := p.leaving[e.handle]; old != nil {
		p.drop(old)
	}
	p.table.leave(e)
	p.leaving[e.handle] = e
	e.state, e.armed = leaving, false
}

// arm notes that a change has enabled an entry.
func (e *entry) arm(c *backend.Change) {
	e.loose = e.loose || e.armed
	e.token, e.interest, e.armed, e.fresh = c.Token, uint8(c.Interest), true, false
}

// silence notes that a change has disabled it.
func (e *entry) silence(c *backend.Change) {
	e.loose = e.loose || e.armed
	e.token, e.armed = c.Token, false
}

// outdate drops an entry's packets from the stash up to a mark: they were dequeued before it was enabled.
func (p *Poller) outdate(e *entry, mark int) {
	for i := p.first; i < mark; i++ {
		if p.stash[i].Key == e.key {
			p.stash[i].Key = nobody
		}
	}
}

// nobody is no entry's key: it is of generation 0.
const nobody = 1

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

// An outcome is what came of the registrations of one step.
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

// blind tells that it was enabled, and not whether it was registered before.
func (o outcome) blind() bool { return !o.whole && exhausted(o.first) && o.last == success }

func (o outcome) ok() bool { return o.first == success && o.last == success }

// watches tells whether an entry's socket is still registered, and forgets the entry if it is not. What is
// due stays due.
func (p *Poller) watches(e *entry) bool {
	if !e.armed {
		o := p.one(e, opDisable, 0)
		if o.ok() || p.transient(e.handle, o) {
			return true
		}
		p.drop(e)
		return false
	}
	e.loose = true
	switch p.renew(e, false) {
	case ended:
		return false
	case silenced:
		p.ask(e)
	}
	return true // also where it cannot be told
}

// describes tells whether an entry's handle is a socket at all, and forgets the entry if it is not.
func (p *Poller) describes(e *entry) bool {
	_, err := p.sys.Describe(e.handle)
	if err != nil {
		p.drop(e)
	}
	return err == nil
}

// transient tells failures that say nothing about the registration.
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

// gone forgets an entry whose socket is not registered any more. If finding out has registered the socket
// that has the number now, that is taken back.
func (p *Poller) gone(e *entry, registered bool) {
	const tries = 100 // as long as there is no memory for it
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

// ask makes a report without conditions, which has the layer look again with a Set, for an entry that
// cannot be enabled.
func (p *Poller) ask(e *entry) {
	e.loose, e.fresh = false, true
	p.stash = append(p.stash, stashed{Entry: Entry{Key: e.key}})
}
