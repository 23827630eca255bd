package port

import (
	"errors"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

var (
	errOperating  = errors.New("operations of the socket are in flight")
	errRegistered = errors.New("the socket has a registration; remove it first")
)

// Admit starts a reserved operation. queued reports that completions were queued.
func (p *Port) Admit(w *Call, s *sock.Socket, o *Overlapped) (queued bool, err error) {
	if queued, err = p.submit(w, s, o); err != nil {
		o.Forget()
		o.End()
	}
	return queued, err
}

// submit starts an operation on its socket, which stays open during the call.
func (p *Port) submit(w *Call, s *sock.Socket, o *Overlapped) (queued bool, err error) {
	held, err := s.Hold()
	if err != nil {
		return false, o.cause(NoSocket, err)
	}
	defer held.Release() // after the unlock, because the last use closes the socket
	sl, err := p.slotFor(s, o)
	if err != nil {
		return false, err
	}
	sl.Mu.Lock()
	defer sl.Mu.Unlock()
	first, err := p.place(w, sl, s, o)
	if !first || err != nil {
		return false, err
	}
	return p.proceed(w, sl, held, s.Handle(), o.kind.direction()), nil
}

// slotFor returns the slot of an operation's socket.
func (p *Port) slotFor(s *sock.Socket, o *Overlapped) (*Slot, error) {
	h := s.Handle()
	if h > MaxIndex {
		return nil, &OperationError{Op: o.kind.String(), Handle: h, Kind: ErrBadSocket}
	}
	return p.Table.at(uint32(h)), nil
}

// watchesFor reports whether the port watches a socket for operations. The slot is locked.
func (sl *Slot) watchesFor(s *sock.Socket) bool {
	return sl.Word.Load()&wOverlapped != 0 && sl.Reg.Load().fd == fdstate.Of(s.SyscallConn())
}

// place appends an operation to its socket's list. If it is not the first, the backend already watches what it waits for.
// The slot is locked.
func (p *Port) place(w *Call, sl *Slot, s *sock.Socket, o *Overlapped) (first bool, err error) {
	h, d := s.Handle(), o.kind.direction()
	if !sl.watchesFor(s) {
		if f := p.watchForOperations(w, sl, s, h, d); f != nil {
			return false, &OperationError{Op: o.kind.String(), Handle: h, Kind: f.kind, Err: f.err}
		}
	}
	ops := &sl.Reg.Load().Work.operations
	l := ops.list(d)
	l.push(o)
	o.at.Store(uint32(h) + 1)
	if o.kind == OpConnect {
		ops.connects++
	}
	return l.first == o, nil
}

// proceed carries out the first operations of some directions, which have just been started. The slot is locked.
func (p *Port) proceed(w *Call, sl *Slot, held sock.Held, h Socket, d fdstate.Dir) (queued bool) {
	reg := sl.Reg.Load()
	ops := &reg.Work.operations
	to := outlet{p: p}
	more := p.operate(ops, sl, reg.fd, held, h, d, &to)
	if ops.pending(d) {
		p.await(w, sl, ops, uint32(h))
	}
	if more {
		p.Recheck(sl, uint32(h), WEnabled|wOverlapped)
	}
	return to.queued
}

// watchForOperations makes the port watch a socket for operations. The slot is locked.
func (p *Port) watchForOperations(w *Call, sl *Slot, s *sock.Socket, h Socket, d fdstate.Dir) *failure {
	r := &Entry{FD: fdstate.Of(s.SyscallConn()), Op: OpEnable, Trigger: TriggerLevel, Work: &Work{Socket: s}}
	if r.Filter = EventIn; d == fdstate.Send {
		r.Filter = EventOut
	}
	switch was := sl.Word.Load(); {
	case was&WRegistered == 0:
		return p.create(w, sl, r, h)
	case was&wOverlapped != 0: // for another socket, which is closed
		return p.mismatch(w, sl, r, h, ErrBadSocket, nil)
	default:
		return p.mismatch(w, sl, r, h, ErrInvalid, errRegistered)
	}
}

// sockShutSend carries out the sends that wait for a socket whose sending direction the program has shut. They fail now, but
// Linux does not report a Unix stream for that while what it has sent fills the peer's buffer.
func (p *Port) sockShutSend(t *fdstate.FD, handle uintptr) {
	if handle > MaxIndex {
		return
	}
	w := p.Begin()
	if w == nil {
		return
	}
	defer p.End(w)
	if s := p.Table.Lookup(uint32(handle)); s != nil && p.retrySends(w, s, t, handle) {
		p.Waiters.WakeOne(p.Core, nil)
	}
}

func (p *Port) retrySends(w *Call, s *Slot, t *fdstate.FD, h Socket) (queued bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	reg := s.Reg.Load()
	if s.Word.Load()&wOverlapped == 0 || reg.fd != t || !reg.Work.pending(fdstate.Send) {
		return false
	}
	held, err := reg.Work.Socket.Hold()
	if err != nil {
		return false // it is being closed, which completes them
	}
	defer held.Release() // not the last, because the call that shuts the direction holds one
	notify(t, 0)
	return p.proceed(w, s, held, h, fdstate.Send)
}

// unwatch ends that for a socket without operations in flight. The slot is locked.
func (p *Port) unwatch(w *Call, s *Slot, index uint32) {
	p.forget(w.stripe, s, index)
	w.single[0] = backend.Change{Handle: Socket(index), Action: backend.Delete}
	p.Core.Poller.Poll(w.single[:], nil)
	p.Core.releaseHandle(index)
}

// probeForTransfer answers another port that asks for a number. A socket without operations in flight is released (O11).
func (p *Port) probeForTransfer(index uint32) (has, busy bool, err error) {
	if s := p.Table.Lookup(index); s != nil && s.Word.Load()&wOverlapped != 0 && s.Mu.TryLock() {
		if reg := s.Reg.Load(); s.Word.Load()&wOverlapped != 0 && reg.Work.idle() {
			p.forget(&p.Core.Stripes[0], s, index)
			p.Core.Poller.Poll([]backend.Change{{Handle: Socket(index), Action: backend.Delete}}, nil)
		}
		s.Mu.Unlock()
	}
	return p.Probe(index)
}

// await makes the backend watch what the first operations wait for. The slot is locked.
func (p *Port) await(w *Call, s *Slot, ops *operations, index uint32) {
	f := ops.awaited()
	was := s.Word.Load()
	if p.Core.Edges {
		if f&^wordFilter(was) == 0 {
			return // the backend watches it already
		}
		f |= wordFilter(was)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, flagMask&^wFilter, uint64(f)) })
	c := &w.single[0]
	*c = backend.Change{Handle: Socket(index), Action: backend.Set, Token: token(is, index), Interest: p.Core.interest(is)}
	p.Core.Poller.Poll(w.single[:], nil)
	switch c.Status {
	case backend.Done:
	case backend.Absent, backend.Bad: // the handle was closed without the sock.Socket
		p.forget(w.stripe, s, index)
		p.Core.releaseHandle(index)
	default:
		p.later(recheckDelay, index)
	}
}

// interest returns what the backend must watch for a word. A backend without edges would go on reporting what no operation
// waits for.
func (c *Core) interest(word uint64) backend.Mask {
	if word&wOverlapped == 0 || c.Edges {
		return unreported(word)
	}
	var m backend.Mask
	if wordFilter(word)&EventIn != 0 {
		m |= backend.In | backend.PeerClosed
	}
	if wordFilter(word)&EventOut != 0 {
		m |= backend.Out
	}
	return m
}
