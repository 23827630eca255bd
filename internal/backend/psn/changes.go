package psn

import (
	"errors"

	"github.com/socknotify/socknotify/internal/backend"
)

// A step is what the next call of the system does to one entry.
type step struct {
	c      *backend.Change // nil: a packet was not reported, and the entry is enabled again
	packet Entry           // that packet
	e      *entry
	at, n  int // its registrations
	pinned bool
	pin    uintptr
}

// maxSteps bounds the changes of one call.
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

// plan puts a change into the next call, or gives it its outcome.
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

// set plans to enable an entry anew. With a new token it is for the program, which names the socket that
// has the number now. With the old one it is the layer that looks again, at any time, and the number must
// not change hands between the two registrations.
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

// miss is the outcome of a change to what is not registered, or cannot be.
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
// returns how many there were.
func (p *Poller) flush(want int) int {
	if len(p.regs) == 0 && want == 0 {
		return 0
	}
	p.mark = len(p.stash)
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
			e.fresh = false // its packet waits for another call
		}
	}
	clear(p.steps) // they point to what is the caller's
	p.regs, p.steps = p.regs[:0], p.steps[:0]
	return n
}

// oneByOne is flush where the call has failed as a whole. One of the sockets may be the cause, and must not
// harm the others.
func (p *Poller) oneByOne(want int) int {
	for i := range p.steps {
		s := &p.steps[i]
		regs := p.regs[s.at : s.at+s.n]
		p.mark = len(p.stash)
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

// settle does what follows from a step, and gives its change the outcome.
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
		e.silence(c)
	case o.ok():
		p.leave(e)
	case p.transient(c.Handle, o), c.Action == backend.Delete && p.one(e, opDisable, 0).ok():
		p.refuse(c, o.first) // still there: the removal has failed for a reason of its own
	default:
		p.drop(e)
		p.miss(c)
	}
}

// verdictOf is judge for a step, and renews an entry that could not be enabled.
func (p *Poller) verdictOf(s *step, o outcome) verdict {
	v := p.judge(s.e, s.pinned, s.pin, o)
	switch v {
	case renewed:
		p.outdate(s.e, p.mark)
	case silenced:
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
	case silenced:
		e.silence(c) // the layer, once refused, asks about it with another Set
		p.refuse(c, o.last)
	case unknown:
		e.token, e.interest = token, interest
		p.refuse(c, o.first)
	}
}

func (p *Poller) refuse(c *backend.Change, code uint32) {
	c.Status, c.Err = backend.Refused, p.sys.Errno(code)
}

// settleAdd finds that there was nothing to disable, or else a registration that the backend does not know,
// whose key it cannot change.
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

// arrived forgets that a handle was leaving: it has been registered since.
func (p *Poller) arrived(handle uintptr) {
	if old := p.leaving[handle]; old != nil {
		p.drop(old)
	}
}

// again has the next call enable an entry whose packet is not reported.
func (p *Poller) again(e *entry, packet Entry) {
	e.loose, e.fresh = false, true
	pin, err := p.sys.Pin(e.handle)
	if err != nil {
		if p.describes(e) {
			p.stash = append(p.stash, stashed{Entry: packet})
		}
		return
	}
	p.add(step{e: e, packet: packet, pinned: true, pin: pin}, e.registration(opDisable, 0), e.registration(opEnable, backend.Mask(e.interest)))
}

func (p *Poller) settleAgain(s *step, o outcome) {
	switch p.verdictOf(s, o) {
	case unknown, silenced:
		p.stash = append(p.stash, stashed{Entry: s.packet}) // reported after all
	}
}
