package port

import (
	"errors"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// apply processes one entry for a handle. Its Result may be set as late as the flush.
func (p *Port) apply(w *Call, r *Entry, h Socket) {
	if h > MaxIndex {
		_, err := p.Core.Poller.Describe(h)
		p.fail(r, h, ErrBadSocket, err)
		return
	}
	index := uint32(h)
	if r.Op == OpEnable {
		s := p.Table.Lookup(index)
		if s != nil && r.Drained && r.Conn != nil && p.Core.OwnEdges &&
			p.rearm(s, r.Filter, r.Trigger, true, nil, r.Key) {
			w.saved++
			return
		}
		if s == nil {
			// Make no page before the handle is known to be a socket: a bad number may be anything.
			if _, err := p.Core.Poller.Describe(h); err != nil {
				p.fail(r, h, ErrBadSocket, err)
				return
			}
			s = p.Table.At(index)
		}
		p.lockSlot(w, s)
		p.enable(w, s, r, h)
		return
	}
	s := p.Table.Lookup(index)
	if s == nil {
		p.missing(r, h)
		return
	}
	p.lockSlot(w, s)
	word := s.word.Load()
	if word&wRegistered == 0 || word&wOverlapped != 0 {
		s.Mu.Unlock()
		p.missing(r, h)
		return
	}
	c := backend.Change{Handle: h, Action: backend.Suppress}
	var is uint64
	if r.Op == OpRemove {
		// From here on nothing is dequeued for the registration (G4): reports with the old epoch
		// are dropped (G5).
		c.Action = backend.Delete
		_, is = s.update(func(v uint64) uint64 { return nextEpoch(v, wRecheck, 0) })
	} else {
		_, is = s.update(func(v uint64) uint64 {
			return nextEpoch(v, flagMask&^(wEnabled|wPending), wSuppressed)
		})
	}
	c.Token = token(is, index)
	p.add(w, r, s, word, index, &c)
}

// missing sets the Result of an operation on a handle without a registration.
func (p *Port) missing(r *Entry, h Socket) {
	if _, err := p.Core.Poller.Describe(h); err != nil {
		p.fail(r, h, ErrBadSocket, err)
		return
	}
	p.fail(r, h, ErrNotRegistered, nil)
}

// newRecord returns a record for the registration that an entry makes.
func (p *Port) newRecord(r *Entry) *Record {
	rec := p.typed.NewRecord(r.Key)
	rec.fd, rec.Work = r.FD, r.Work
	return rec
}

// armed returns the word of an entry that goes to the backend.
func (p *Port) armed(r *Entry) uint64 {
	word := armed(r.Filter, r.Trigger)
	if word&(wEdge|wOneShot) == 0 && r.Work == nil && !p.levels.any.Load() {
		p.levels.any.Store(true)
	}
	if p.Core.strict && word&wEdge != 0 {
		word |= wStrict
	}
	return word
}

// enable processes OpEnable. The slot is locked; enable unlocks it, or leaves that to the batch.
func (p *Port) enable(w *Call, s *Slot, r *Entry, h Socket) {
	index := uint32(h)
	fits, kind, why := p.fits(s, r)
	if !fits && w.batch.n > 0 {
		// The registration may have to be created, which may wait for a call of another port, and
		// that call may wait for a slot in this batch.
		s.Mu.Unlock()
		p.flush(w)
		s.Mu.Lock()
		fits, kind, why = p.fits(s, r)
	}
	was, reg := s.word.Load(), s.Reg.Load()
	if !fits {
		var f *failure
		switch {
		case was&wRegistered == 0:
			f = p.create(w, s, r, h)
		case was&wOverlapped != 0 && reg.Work.idle():
			p.unwatch(s, index)
			p.Core.releaseHandle(index)
			f = p.create(w, s, r, h)
		default:
			f = p.mismatch(w, s, r, h, kind, why)
		}
		if f != nil {
			p.fail(r, h, f.kind, f.err)
		}
		s.Mu.Unlock()
		return
	}
	if r.FD != nil && reg.fd != r.FD ||
		r.Work != nil && reg.Work.Accept.AtOnce != r.Work.Accept.AtOnce {
		reg = p.newRecord(r)
		s.Reg.Store(reg)
	}
	// The word is enabled before the backend is asked. Otherwise another goroutine could harvest
	// the report that the change causes, and find the registration disabled.
	flags := p.armed(r)
	var held backend.Mask
	if flags&wStrict != 0 {
		held = p.held(reg.fd, r.Drained, h, was&wStream != 0)
		flags |= reportedBits(held)
	}
	_, is := s.update(func(v uint64) uint64 {
		return nextEpoch(v, wKind|wRecheck, flags)
	})
	noteHeld(reg.fd, held)
	w.stripe.rearms.Add(1)
	p.add(w, r, s, was, index, &backend.Change{
		Handle: h, Action: backend.Set, Token: token(is, index), Interest: interest(r.Filter),
	})
}

// fits reports whether an entry fits the registration that there is. If it does not, kind and why
// are its failure, unless there is none, or the registered socket is closed.
func (p *Port) fits(s *Slot, r *Entry) (fits bool, kind, why error) {
	was, reg := s.word.Load(), s.Reg.Load()
	switch {
	case was&wRegistered == 0:
		return false, nil, nil
	case was&wOverlapped != 0:
		return false, ErrInvalid, errOperating
	case !p.typed.SameKey(reg, r.Key):
		return false, ErrKeyMismatch, nil
	case !reg.Work.like(r.Work):
		return false, ErrInvalid, errAccepting
	}
	return true, nil, nil
}

// mismatch handles an entry that does not fit the registration. It is an error, unless the
// registered socket is closed and this is another socket with its number (G12).
func (p *Port) mismatch(w *Call, s *Slot, r *Entry, h Socket, kind, why error) *failure {
	has, err := p.Core.Poller.Has(h)
	switch {
	case has:
		return failed(kind, why)
	case err != nil:
		p.end(s, uint32(h))
		return failed(ErrBadSocket, err)
	}
	p.forget(s, uint32(h))
	return p.create(w, s, r, h)
}

// create makes a registration in an unregistered slot, which is locked. It changes the backend at
// once rather than with the batch, because the handle's ownership is in transfer, and a call that
// holds it in transfer must not wait.
func (p *Port) create(w *Call, s *Slot, r *Entry, h Socket) *failure {
	index := uint32(h)
	kind := backend.Stream
	if t := r.FD; t == nil || t.Kind()&fdstate.Accepted == 0 {
		var err error
		if kind, err = p.Core.Poller.Describe(h); err != nil {
			return failed(ErrBadSocket, err)
		}
	}
	if r.Work != nil && r.Work.Accept != nil && kind != backend.Listener {
		return failed(ErrInvalid, errNoListener)
	}
	previous, err := p.Core.acquireHandle(index, h)
	switch {
	case errors.Is(err, ErrOtherPort):
		return failed(ErrOtherPort, nil)
	case err != nil:
		return failed(nil, err)
	}
	s.Reg.Store(p.newRecord(r))
	if o := p.Core.Observer.Load(); o != nil {
		(*o).Registered(index)
	}
	flags := p.armed(r) | kindBits(r, kind)
	var held backend.Mask
	if flags&wStrict != 0 {
		held = p.held(r.FD, r.Drained, h, kind == backend.Stream)
		flags |= reportedBits(held)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, wRecheck, flags) })
	noteHeld(r.FD, held)
	watched := interest(r.Filter)
	if flags&wOverlapped != 0 {
		watched = p.Core.interest(is)
	}
	if !p.Waiters.watching.Load() {
		p.Waiters.watching.Store(true)
		p.Waiters.appointLeader()
	}
	c := p.change(w, backend.Change{
		Handle: h, Action: backend.Add, Token: token(is, index), Interest: watched,
		Listens: kind == backend.Listener,
	})
	if c.Status == backend.Present {
		// The kernel still has the entry of an earlier registration, because a duplicate keeps that
		// socket alive.
		c.Action = backend.Set
		p.change(w, *c)
	}
	if c.Status != backend.Done {
		s.update(func(v uint64) uint64 { return nextEpoch(v, wRecheck, 0) })
		s.Reg.Store(nil)
		if o := p.Core.Observer.Load(); o != nil {
			(*o).Ended(index, false)
		}
		p.Core.endTransfer(index, false)
		if c.Status == backend.Bad {
			return failed(ErrBadSocket, c.Err)
		}
		return failed(nil, c.Err)
	}
	p.Core.endTransfer(index, true)
	if previous != nil {
		previous.transferred(index)
	}
	p.Core.Stripes[index%Stripes].registrations.Add(1)
	p.own(r)
	if r.Conn != nil {
		p.conns.hold(r.Conn, w.raw, index)
	}
	return nil
}

// kindBits returns the flags of a new registration that an enable keeps (wKind).
func kindBits(r *Entry, kind backend.Kind) (flags uint64) {
	if kind == backend.Stream {
		flags |= wStream
	}
	if r.Conn != nil {
		flags |= wConn
	}
	switch {
	case r.Work == nil:
	case r.Work.Accept != nil:
		flags |= wAccept
	default:
		flags |= wOverlapped
	}
	return flags
}

// FastEnable carries out an OpEnable without a system call, if the program (drained) or the socket
// of package sock (fd, which may be nil) knows that no condition of the filter holds (X5). False
// means that nothing was done. No use of the handle is counted: a registration is known by its FD,
// and for any other socket the program promises that it is open.
//
// w is nil if the call does nothing else. Such a call is not counted in, because it makes no system
// call. FastEnable takes single values rather than an Entry, because making an Entry would cost as
// much as the rest.
func (p *Port) FastEnable(
	w *Call, fd *fdstate.FD, handle Socket, filter Events, trigger Trigger, drained bool,
	key unsafe.Pointer,
) bool {
	if handle > MaxIndex || !p.Core.OwnEdges || !sound(filter, trigger) {
		return false
	}
	var generation uint64
	if !drained {
		generation = fd.Generation()
		if !fd.Drained(directions(filter)) {
			return false
		}
	}
	s := p.Table.Lookup(uint32(handle))
	if s == nil || p.checksKeys && p.typed.CheckKey(key) != nil ||
		!p.rearm(s, filter, trigger, false, fd, key) {
		return false
	}
	if !drained && fd.Generation() != generation {
		// Another goroutine has enabled the registration and was notified in between, and the word
		// has become what it was. The condition that it was notified of may still hold.
		p.Recheck(s, uint32(handle))
	}
	if w != nil {
		w.saved++
	} else {
		p.Core.Stripes[handle%Stripes].saved.Add(1)
	}
	return true
}

// rearm enables without a system call (X5). It needs three things: the backend has reported nothing
// since the last enable, it watches the same conditions, and it is not suppressed. All three are in
// the word that a harvester must swap to change them, so no report is lost: a report harvested
// before has set wPending, and one harvested later finds the registration enabled.
//
// If fd is not nil, the registration must be of that socket. fd is nil if the caller has set
// Drained.
func (p *Port) rearm(
	s *Slot, filter Events, trigger Trigger, conn bool, fd *fdstate.FD, key unsafe.Pointer,
) bool {
	for {
		was := s.word.Load()
		if was&(wRegistered|wPending|wSuppressed|wWorked) != wRegistered ||
			wordFilter(was) != filter {
			return false
		}
		if conn && was&wConn == 0 {
			return false // the port does not hold the connection yet
		}
		reg := s.Reg.Load()
		if reg == nil || fd != nil && reg.fd != fd || !p.typed.SameKey(reg, key) {
			return false
		}
		is := was&^(wOneShot|wEdge) | armed(filter, trigger)
		if is&(wEdge|wOneShot) == 0 {
			return false // a persistent level must be polled
		}
		if s.word.CompareAndSwap(was, is) {
			return true
		}
	}
}

// held returns the conditions that a strict edge must not report because they hold as the
// registration is enabled. In a direction that was drained, no condition held before; what holds
// now has begun since. fd belongs to the registration, which may be enabled by its handle alone.
func (p *Port) held(fd *fdstate.FD, drained bool, h Socket, stream bool) backend.Mask {
	if drained {
		return 0
	}
	m := p.Core.Poller.PollOne(h)
	if meaning(m, EventsAll, stream) == EventNone {
		return 0 // a stream that was never started (E6)
	}
	if fd != nil {
		if fd.Drained(fdstate.Recv) {
			m &^= backend.In | backend.PeerClosed | backend.Dead
		}
		if fd.Drained(fdstate.Send) {
			m &^= backend.Out
		}
	}
	return m
}

// noteHeld makes the socket of a registration report when the conditions that held are drained. The
// word must have been swapped: a call that would have blocked before the swap was not made by the
// goroutine that enables and then drains.
func noteHeld(fd *fdstate.FD, held backend.Mask) {
	if fd != nil && held != 0 {
		fd.Suppressed(suppressedBy(held))
	}
}
