package psn

import (
	"errors"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// A step is the part of the next call of the system for one entry.
type step struct {
	c      *backend.Change // nil if the entry is enabled again because its packet was not reported
	packet Entry           // that packet
	e      *entry
	at, n  int // the index and number of its registrations
	pinned bool
	pin    uintptr
}

// maxSteps limits the changes of one call.
const maxSteps = 64

var (
	errPresent = errors.New("registered already")
	errAbsent  = errors.New("not registered")
	errTooMany = errors.New("too many registrations")
)

func (p *Poller) add(s step, regs ...Registration) {
	s.at, s.n = len(p.regs), len(regs)
	s.e.planned = true
	p.regs, p.steps = append(p.regs, regs...), append(p.steps, s)
}

// plan puts a change into the next call, or sets its outcome.
func (p *Poller) plan(c *backend.Change) {
	e := p.table.byHandle(c.Handle)
	switch {
	case c.Action == backend.Add && e != nil && p.watches(e):
		c.Status, c.Err = backend.Present, errPresent
		return
	case c.Action == backend.Add:
		if e = p.table.create(c.Handle); e == nil {
			p.miss(c)
			return
		}
		e.arm(c)
		p.add(step{c: c, e: e}, e.registration(opDisable, 0), e.registration(opEnable, c.Interest))
		return
	case e == nil:
		p.miss(c)
		return
	}
	switch c.Action {
	case backend.Set:
		p.set(c, e)
	case backend.Suppress:
		p.add(step{c: c, e: e}, e.registration(opDisable, 0))
	case backend.Delete:
		p.add(step{c: c, e: e}, e.registration(opRemove, 0))
	}
}

// set plans to enable an entry again. A new token means that the program enables, and names the socket that
// has the number now. The old token means that the layer above polls again, which it may do at any time.
// Then both registrations must be of the same socket, so it is pinned.
func (p *Poller) set(c *backend.Change, e *entry) {
	s := step{c: c, e: e}
	if c.Token != e.token && e.doubtful {
		p.gone(e, true)
		p.miss(c)
		return
	}
	if c.Token == e.token {
		var err error
		if s.pin, err = p.sys.Pin(e.handle); err != nil {
			if p.describes(e) {
				c.Status, c.Err = backend.Refused, err
			} else {
				p.miss(c)
			}
			return
		}
		s.pinned = true
	}
	p.add(s, e.registration(opDisable, 0), e.registration(opEnable, c.Interest))
}

// miss sets the outcome of a change of a handle that is not registered, or cannot be.
func (p *Poller) miss(c *backend.Change) {
	if _, err := p.sys.Describe(c.Handle); err != nil {
		c.Status, c.Err = backend.Bad, err
		return
	}
	c.Status, c.Err = backend.Absent, errAbsent
	if c.Action == backend.Add {
		c.Status, c.Err = backend.Refused, errTooMany
	}
}

// flush makes the call, which dequeues up to want packets into p.entries, and settles the steps. It
// returns the number of packets.
func (p *Poller) flush(want int) int {
	if len(p.regs) == 0 && want == 0 {
		return 0
	}
	p.mark = len(p.pending)
	n, code := p.sys.Process(p.port, p.regs, 0, p.entries[:want])
	if failed(code) && len(p.regs) > 0 {
		n = p.oneByOne(want)
	} else {
		for i := range p.steps {
			s := &p.steps[i]
			p.settle(s, outcomeOf(p.regs[s.at:s.at+s.n], code))
		}
		if code != success {
			n = 0
		}
	}
	for i := range p.steps {
		if e := p.steps[i].e; want == 0 {
			e.fresh = false // a later call dequeues its packet
		}
	}
	clear(p.steps) // they point to the caller's changes
	p.regs, p.steps = p.regs[:0], p.steps[:0]
	return n
}

// oneByOne continues flush after the call has failed as a whole. One of the sockets may be the cause, and must
// not affect the others.
func (p *Poller) oneByOne(want int) int {
	for i := range p.steps {
		s := &p.steps[i]
		regs := p.regs[s.at : s.at+s.n]
		p.mark = len(p.pending)
		_, code := p.sys.Process(p.port, regs, 0, nil)
		p.settle(s, outcomeOf(regs, code))
	}
	if want == 0 {
		return 0
	}
	n, code := p.sys.Process(p.port, nil, 0, p.entries[:want])
	if code != success {
		return 0
	}
	return n
}

// settle updates the entry of a step and sets the outcome of its change.
func (p *Poller) settle(s *step, o outcome) {
	c, e := s.c, s.e
	e.planned = false
	if c == nil {
		p.settleAgain(s, o)
		return
	}
	c.Status, c.Err = backend.Done, nil
	switch {
	case c.Action == backend.Add:
		p.settleAdd(c, e, o)
	case c.Action == backend.Set:
		p.settleSet(s, o)
	case o.ok() && c.Action == backend.Suppress:
		e.suppress(c)
	case o.ok():
		p.leave(e)
	case p.transient(c.Handle, o), c.Action == backend.Delete && p.one(e, opDisable, 0).ok():
		p.refuse(c, o.first) // still registered: the removal failed for another reason
	default:
		p.drop(e)
		p.miss(c)
	}
}

// verdictOf judges the outcome of a step, and renews an entry that could not be enabled.
func (p *Poller) verdictOf(s *step, o outcome) verdict {
	v := p.judge(s.e, s.pinned, s.pin, o)
	switch v {
	case renewed:
		p.outdate(s.e, p.mark)
	case suppressed:
		v = p.renew(s.e, true)
	}
	return v
}

func (p *Poller) settleSet(s *step, o outcome) {
	c, e := s.c, s.e
	token, interest := e.token, e.interest
	e.token, e.interest = c.Token, uint8(c.Interest)
	switch p.verdictOf(s, o) {
	case renewed:
		e.arm(c)
	case ended:
		p.miss(c)
	case suppressed:
		e.suppress(c) // the layer above makes another Set after the refusal
		p.refuse(c, o.last)
	case unknown:
		e.token, e.interest = token, interest
		p.refuse(c, o.first)
	}
}

func (p *Poller) refuse(c *backend.Change, code uint32) {
	c.Status, c.Err = backend.Refused, p.sys.Errno(code)
}

// settleAdd settles an Add, which succeeds if there was no registration to disable. If there was one, the backend
// does not know it and cannot change its key, so the registration is removed and the Add tried again.
func (p *Poller) settleAdd(c *backend.Change, e *entry, o outcome) {
	switch {
	case o.ok(), o.blind():
		p.gone(e, true)
		p.refused = append(p.refused, c)
		return
	case o.last == success:
		p.arrived(c.Handle)
		return
	}
	p.drop(e)
	if _, err := p.sys.Describe(c.Handle); err != nil {
		c.Status, c.Err = backend.Bad, err
		return
	}
	p.refuse(c, o.last)
	if !o.whole && !exhausted(o.last) {
		p.refused = append(p.refused, c)
	}
}

// arrived forgets the leaving entry of a handle that was registered again.
func (p *Poller) arrived(handle uintptr) {
	if old := p.leaving[handle]; old != nil {
		p.drop(old)
	}
}

// again plans to enable an entry whose packet is not reported.
func (p *Poller) again(e *entry, packet Entry) {
	e.stale, e.fresh = false, true
	pin, err := p.sys.Pin(e.handle)
	if err != nil {
		if p.describes(e) {
			p.pending = append(p.pending, pendingPacket{Entry: packet})
		}
		return
	}
	p.add(step{e: e, packet: packet, pinned: true, pin: pin}, e.registration(opDisable, 0), e.registration(opEnable, backend.Mask(e.interest)))
}

func (p *Poller) settleAgain(s *step, o outcome) {
	switch p.verdictOf(s, o) {
	case unknown, suppressed:
		p.pending = append(p.pending, pendingPacket{Entry: s.packet}) // so that it is reported after all
	}
}
