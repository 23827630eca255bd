package socknotify

import (
	"errors"
	"net/netip"
	"runtime"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
	"github.com/socknotify/socknotify/sock"
)

var (
	errOperating  = errors.New("operations of the socket are in flight")
	errRegistered = errors.New("the socket has a registration; remove it first")
)

// claim makes an operation one that is being started, with what it has in common with others.
func (p *Port[K]) claim(kind opKind, key K, b []byte, o *Overlapped[K]) error {
	switch {
	case p.core.closed.Load():
		return ErrClosed
	case o == nil:
		return callError(kind.call(), "a nil Overlapped")
	case !o.claim(p.core):
		return callError(kind.call(), "the Overlapped is in flight")
	}
	o.kind, o.begun, o.n, o.err = kind, false, 0, nil
	o.key, o.buf = key, b
	return nil
}

// start begins an operation on a socket.
func (p *Port[K]) start(kind opKind, s *sock.Socket, key K, b []byte, to netip.AddrPort, o *Overlapped[K]) error {
	if s == nil && !p.core.closed.Load() {
		return callError(kind.call(), "a nil socket")
	}
	if err := p.claim(kind, key, b, o); err != nil {
		return err
	}
	o.addr = to
	err := p.submit(s, o)
	if err != nil {
		o.forget()
		o.end()
	}
	runtime.KeepAlive(p)
	return err
}

// submit gives an operation to its socket, which is in use meanwhile.
func (p *Port[K]) submit(s *sock.Socket, o *Overlapped[K]) error {
	held, err := s.Hold()
	if err != nil {
		return o.cause(noSocket, err)
	}
	defer held.Release() // after the unlock: it may be the one that closes
	w := p.begin()
	if w == nil {
		return ErrClosed
	}
	defer p.end(w)
	h := s.Handle()
	if h > maxIndex {
		return &OverlappedError{Op: o.kind.String(), Socket: h, Kind: ErrBadSocket}
	}
	index := uint32(h)
	sl := p.table.at(index)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	d := o.kind.direction()
	reg := sl.reg.Load()
	if sl.word.Load()&wOverlapped == 0 || reg.tie != s.Tie() {
		if err := p.associate(w, sl, s, h, d); err != nil {
			return o.notStarted(h, err)
		}
		reg = sl.reg.Load()
	}
	ops := &reg.work.operations
	l := ops.list(d)
	l.push(o)
	o.at.Store(index + 1)
	if o.kind == opConnect {
		ops.connects++
	}
	if l.first != o {
		return nil // what it waits for is waited for already
	}
	to := outlet[K]{p: p}
	more := p.operate(ops, sl, s.Tie(), held, h, d, &to)
	if l.first != nil {
		p.await(w, sl, ops, index)
	}
	if more {
		p.askAgain(sl, index, wEnabled|wOverlapped)
	}
	if to.queued {
		p.parking.wakeOne(p.core, nil)
	}
	return nil
}

// associate makes the port watch a socket for operations. The slot is locked.
func (p *Port[K]) associate(w *call[K], sl *slot[K], s *sock.Socket, h Socket, d tie.Dir) error {
	r := &Registration[K]{Sock: s, Op: OpEnable, Trigger: TriggerLevel, work: &work[K]{socket: s}}
	if r.Filter = EventIn; d == tie.Send {
		r.Filter = EventOut
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
func (p *Port[K]) dissociate(w *call[K], s *slot[K], index uint32) {
	p.forget(w.stripe, s, index)
	w.single[0] = kernel.Change{Handle: Socket(index), Action: kernel.Delete}
	p.core.kernel.Poll(w.single[:], nil)
	p.core.unclaim(index)
}

// contested answers another port that asks for a number: a socket without operations in flight is given up
// (O11).
func (p *Port[K]) contested(index uint32) (has, busy bool, err error) {
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
func (p *Port[K]) await(w *call[K], s *slot[K], ops *operations[K], index uint32) {
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
