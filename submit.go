package socknotify

import (
	"errors"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
	"github.com/socknotify/socknotify/sock"
)

var (
	errOperating  = errors.New("operations of the socket are in flight")
	errRegistered = errors.New("the socket has a registration; remove it first")
)

// claim makes an operation one that is being started, with what it has in common with others.
func (p *port) claim(kind opKind, b []byte, o *overlapped) error {
	switch {
	case p.core.closed.Load():
		return ErrClosed
	case o == nil:
		return callError(kind.call(), "a nil Overlapped")
	case !o.claim(p.core):
		return callError(kind.call(), "the Overlapped is in flight")
	}
	o.kind, o.begun, o.n, o.err = kind, false, 0, nil
	o.buf, o.pool = b, nil
	return nil
}

// admit begins an operation that has been claimed, and makes its system call at once, or leaves that to carryOut.
func (p *port) admit(w *call, s *sock.Socket, o *overlapped, later bool) (queued bool, err error) {
	if later {
		err = p.gatherStart(w, s, o)
	} else {
		queued, err = p.submit(w, s, o)
	}
	if err != nil {
		o.forget()
		o.end()
	}
	return queued, err
}

// submit gives an operation to its socket, which is in use meanwhile. queued says that completions were queued.
func (p *port) submit(w *call, s *sock.Socket, o *overlapped) (queued bool, err error) {
	held, err := s.Hold()
	if err != nil {
		return false, o.cause(noSocket, err)
	}
	defer held.Release() // after the unlock: it may be the one that closes
	sl, err := p.slotFor(s, o)
	if err != nil {
		return false, err
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	first, err := p.place(w, sl, s, o)
	if !first || err != nil {
		return false, err
	}
	return p.proceed(w, sl, held, s.Handle(), o.kind.direction(), nil), nil
}

// slotFor is the slot of an operation's socket.
func (p *port) slotFor(s *sock.Socket, o *overlapped) (*slot, error) {
	h := s.Handle()
	if h > maxIndex {
		return nil, &OverlappedError{Op: o.kind.String(), Socket: h, Kind: ErrBadSocket}
	}
	return p.table.at(uint32(h)), nil
}

// associated tells that the port watches a socket for operations. The slot is locked.
func (sl *slot) associated(s *sock.Socket) bool {
	return sl.word.Load()&wOverlapped != 0 && sl.reg.Load().tie == s.Tie()
}

// place puts an operation on its socket's list. If it is not the first there, what it waits for is waited for
// already. The slot is locked.
func (p *port) place(w *call, sl *slot, s *sock.Socket, o *overlapped) (first bool, err error) {
	h, d := s.Handle(), o.kind.direction()
	if !sl.associated(s) {
		if err := p.associate(w, sl, s, h, d); err != nil {
			return false, o.notStarted(h, err)
		}
	}
	ops := &sl.reg.Load().work.operations
	l := ops.list(d)
	l.push(o)
	o.at.Store(uint32(h) + 1)
	if o.kind == opConnect {
		ops.connects++
	}
	return l.first == o, nil
}

// proceed carries out the first operations of some directions, which have just been started. The slot is locked.
func (p *port) proceed(w *call, sl *slot, held sock.Held, h Socket, d tie.Dir, a *ahead) (queued bool) {
	reg := sl.reg.Load()
	ops := &reg.work.operations
	to := outlet{p: p}
	more := p.operate(ops, sl, reg.tie, held, h, d, &to, a)
	if ops.pending(d) {
		p.await(w, sl, ops, uint32(h))
	}
	if more {
		p.askAgain(sl, uint32(h), wEnabled|wOverlapped)
	}
	return to.queued
}

// associate makes the port watch a socket for operations. The slot is locked.
func (p *port) associate(w *call, sl *slot, s *sock.Socket, h Socket, d tie.Dir) error {
	r := &entry{tie: s.Tie(), op: OpEnable, trigger: TriggerLevel, work: &work{socket: s}}
	if r.filter = EventIn; d == tie.Send {
		r.filter = EventOut
	}
	switch was := sl.word.Load(); {
	case was&wRegistered == 0:
		return p.create(w, sl, r, h)
	case was&wOverlapped != 0: // of another socket, which is closed
		return p.mismatch(w, sl, r, h, ErrBadSocket, nil)
	default:
		return p.mismatch(w, sl, r, h, ErrInvalid, errRegistered)
	}
}

// dissociate ends that, for a socket without operations in flight. The slot is locked.
func (p *port) dissociate(w *call, s *slot, index uint32) {
	p.forget(w.stripe, s, index)
	w.single[0] = kernel.Change{Handle: Socket(index), Action: kernel.Delete}
	p.core.kernel.Poll(w.single[:], nil)
	p.core.unclaim(index)
}

// contested answers another port that asks for a number: a socket without operations in flight is given up
// (O11).
func (p *port) contested(index uint32) (has, busy bool, err error) {
	if s := p.table.lookup(index); s != nil && s.word.Load()&wOverlapped != 0 && s.mu.TryLock() {
		if reg := s.reg.Load(); s.word.Load()&wOverlapped != 0 && reg.work.idle() {
			p.forget(&p.core.stripes[0], s, index)
			p.core.kernel.Poll([]kernel.Change{{Handle: Socket(index), Action: kernel.Delete}}, nil)
		}
		s.mu.Unlock()
	}
	return p.probe(index)
}

// await has the kernel report what the first operations wait for. The slot is locked.
func (p *port) await(w *call, s *slot, ops *operations, index uint32) {
	f := ops.awaited()
	was := s.word.Load()
	if p.core.edges {
		if f&^wordFilter(was) == 0 {
			return // it does, from when the kernel was last asked
		}
		f |= wordFilter(was)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, flagMask&^wFilter, uint64(f)) })
	c := &w.single[0]
	*c = kernel.Change{Handle: Socket(index), Action: kernel.Set, Token: token(is, index), Interest: p.core.interest(is)}
	p.core.kernel.Poll(w.single[:], nil)
	switch c.Status {
	case kernel.Done:
	case kernel.Absent, kernel.Bad: // closed behind the back of its sock.Socket
		p.forget(w.stripe, s, index)
		p.core.unclaim(index)
	default:
		p.later(longWhile, index)
	}
}

// interest is what the kernel must watch for a word that stays as it is. A kernel without edges would go on
// reporting what no operation waits for.
func (c *core) interest(word uint64) kernel.Mask {
	if word&wOverlapped == 0 || c.edges {
		return untold(word)
	}
	var m kernel.Mask
	if wordFilter(word)&EventIn != 0 {
		m |= kernel.In | kernel.PeerClosed
	}
	if wordFilter(word)&EventOut != 0 {
		m |= kernel.Out
	}
	return m
}
