package socknotify

import (
	"errors"
	"net"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
)

// register processes one entry.
func (p *port) register(w *call, r *entry) {
	*r.result = nil
	if !r.enables() {
		if err := r.check(); err != nil {
			*r.result = r.fail(r.handle, ErrInvalid, err)
			return
		}
	}
	if r.op == OpEnable && p.checksKeys {
		if err := p.typed.checkKey(r.key); err != nil {
			*r.result = r.fail(r.handle, ErrInvalid, err)
			return
		}
	}
	switch {
	case r.op == OpNone:
	case r.conn != nil:
		p.registerConn(w, r)
	case r.tie != nil:
		p.registerSock(w, r)
	default:
		p.apply(w, r, r.handle)
	}
}

// fail makes the Result of an entry.
func (r *entry) fail(h Socket, kind, err error) error {
	return &OpError{Op: r.op, Socket: h, Conn: r.conn != nil || r.tie != nil, Kind: kind, Err: err,
		accept: r.work != nil && r.work.accept != nil}
}

// apply processes one entry for a handle. Its Result may come only with the batch's flush.
func (p *port) apply(w *call, r *entry, h Socket) {
	if h > maxIndex {
		_, err := p.core.kernel.Describe(h)
		*r.result = r.fail(h, ErrBadSocket, err)
		return
	}
	index := uint32(h)
	if r.op == OpEnable {
		s := p.table.lookup(index)
		if s != nil && r.drained && p.core.ownEdges && p.rearm(s, r) {
			w.saved++
			return
		}
		if s == nil {
			// No page for what is no socket: its number may be anything.
			if _, err := p.core.kernel.Describe(h); err != nil {
				*r.result = r.fail(h, ErrBadSocket, err)
				return
			}
			s = p.table.at(index)
		}
		p.acquire(w, s)
		p.enable(w, s, r, h)
		return
	}
	s := p.table.lookup(index)
	if s == nil {
		p.missing(r, h)
		return
	}
	p.acquire(w, s)
	word := s.word.Load()
	if word&wRegistered == 0 || word&wOverlapped != 0 {
		s.mu.Unlock()
		p.missing(r, h)
		return
	}
	c := kernel.Change{Handle: h, Action: kernel.Mute}
	var is uint64
	if r.op == OpRemove {
		// From here on nothing is dequeued for it (G4); what is in flight is dropped (G5).
		c.Action = kernel.Delete
		_, is = s.update(func(v uint64) uint64 { return nextEpoch(v, wRelook, 0) })
	} else {
		_, is = s.update(func(v uint64) uint64 {
			return nextEpoch(v, flagMask&^(wEnabled|wPending), wMuted)
		})
	}
	c.Token = token(is, index)
	p.add(w, item{*r, s, word, index}, c)
}

// newRecord returns the record of the registration that an entry makes.
func (p *port) newRecord(r *entry) *record {
	rec := p.typed.newRecord(r.key)
	rec.tie, rec.work = r.tie, r.work
	return rec
}

// missing is the Result of an operation on a handle without registration.
func (p *port) missing(r *entry, h Socket) {
	if _, err := p.core.kernel.Describe(h); err != nil {
		*r.result = r.fail(h, ErrBadSocket, err)
		return
	}
	*r.result = r.fail(h, ErrNotRegistered, nil)
}

// rearm enables without the kernel, for a caller that vouches (X5): the kernel has had nothing to
// report since, it watches the same conditions, and it has not been silenced. All of that is in the
// word that a harvester must swap to change it, so no report can slip in between: one that was
// harvested before has left wPending, one that is harvested later finds the registration enabled.
//
// The caller is either the program, or a socket that must be the one that is registered.
func (p *port) rearm(s *slot, r *entry) bool {
	for {
		was := s.word.Load()
		if was&(wRegistered|wPending|wMuted|wWorked) != wRegistered || wordFilter(was) != r.filter {
			return false
		}
		if r.conn != nil && was&wConn == 0 {
			return false // the port has yet to take hold of the connection
		}
		reg := s.reg.Load()
		if reg == nil || r.tie != nil && reg.tie != r.tie || !p.typed.sameKey(reg, r.key) {
			return false
		}
		is := was&^(wOneShot|wEdge) | armed(r.filter, r.trigger)
		if is&(wEdge|wOneShot) == 0 {
			return false // persistent level: the kernel must look
		}
		if s.word.CompareAndSwap(was, is) {
			return true
		}
	}
}

// armed is armed, for a registration that goes to the kernel.
func (p *port) armed(r *entry) uint64 {
	word := armed(r.filter, r.trigger)
	if word&(wEdge|wOneShot) == 0 && r.work == nil && !p.levels.any.Load() {
		p.levels.any.Store(true)
	}
	if p.core.strict && word&wEdge != 0 {
		word |= wStrict
	}
	return word
}

// enable processes OpEnable under the slot's lock, which it releases or gives to the batch.
func (p *port) enable(w *call, s *slot, r *entry, h Socket) {
	index := uint32(h)
	if w.batch.n > 0 && p.differs(s, r) {
		// It may have to be created, and wait for another port's answer meanwhile; and a call of that port
		// for a slot in the batch.
		s.mu.Unlock()
		p.flush(w)
		s.mu.Lock()
	}
	was := s.word.Load()
	if was&wRegistered == 0 {
		*r.result = p.create(w, s, r, h)
		s.mu.Unlock()
		return
	}
	reg := s.reg.Load()
	switch {
	case was&wOverlapped != 0 && reg.work.idle():
		p.dissociate(w, s, index)
		*r.result = p.create(w, s, r, h)
		s.mu.Unlock()
		return
	case was&wOverlapped != 0:
		*r.result = p.mismatch(w, s, r, h, ErrInvalid, errOperating)
		s.mu.Unlock()
		return
	case !p.typed.sameKey(reg, r.key):
		*r.result = p.mismatch(w, s, r, h, ErrKeyMismatch, nil)
		s.mu.Unlock()
		return
	case !reg.work.like(r.work):
		*r.result = p.mismatch(w, s, r, h, ErrInvalid, errAccepting)
		s.mu.Unlock()
		return
	}
	if t := r.tie; t != nil && reg.tie != t || r.work != nil && reg.work.accept.atOnce != r.work.accept.atOnce {
		s.reg.Store(p.newRecord(r))
	}
	// Enabled first, in the kernel after: the other way round, another goroutine could harvest the
	// report that the change causes and find the registration still disabled.
	flags := p.armed(r)
	var held kernel.Mask
	if flags&wStrict != 0 {
		held = p.held(r, h, was&wStream != 0)
		flags |= toldBits(held)
	}
	_, is := s.update(func(v uint64) uint64 {
		return nextEpoch(v, wKind|wRelook, flags)
	})
	if held != 0 {
		r.heed(held)
	}
	w.stripe.rearms.Add(1)
	p.add(w, item{*r, s, was, index}, kernel.Change{
		Handle: h, Action: kernel.Set, Token: token(is, index), Interest: interest(r.filter),
	})
}

// differs tells whether an entry is for another registration than there is.
func (p *port) differs(s *slot, r *entry) bool {
	if s.word.Load()&wRegistered == 0 {
		return true
	}
	reg := s.reg.Load()
	return !reg.work.like(r.work) || !p.typed.sameKey(reg, r.key)
}

// mismatch is for an entry that the registration does not fit: an error, unless the registration is one of a
// socket that is no more (G12).
func (p *port) mismatch(w *call, s *slot, r *entry, h Socket, kind, why error) error {
	has, err := p.core.kernel.Has(h)
	switch {
	case has:
		return r.fail(h, kind, why)
	case err != nil:
		p.forget(w.stripe, s, uint32(h))
		p.core.unclaim(uint32(h))
		return r.fail(h, ErrBadSocket, err)
	}
	p.forget(w.stripe, s, uint32(h))
	return p.create(w, s, r, h)
}

// create makes a registration in an unregistered slot, under its lock. The kernel is told at once, not
// with the batch, because of the claim: whoever holds one in transit must not wait for others.
func (p *port) create(w *call, s *slot, r *entry, h Socket) error {
	index := uint32(h)
	kind := kernel.Stream
	if t := r.tie; t == nil || t.Kind()&tie.Accepted == 0 {
		var err error
		if kind, err = p.core.kernel.Describe(h); err != nil {
			return r.fail(h, ErrBadSocket, err)
		}
	}
	accepts := r.work != nil && r.work.accept != nil
	if accepts && kind != kernel.Listener {
		return r.fail(h, ErrInvalid, errNoListener)
	}
	loser, err := p.core.claim(index, h)
	switch {
	case errors.Is(err, ErrOtherPort):
		return r.fail(h, ErrOtherPort, nil)
	case err != nil:
		return r.fail(h, nil, err)
	}
	s.reg.Store(p.newRecord(r))
	if o := p.core.observer.Load(); o != nil {
		o.begin(index)
	}
	flags := p.armed(r)
	if kind == kernel.Stream {
		flags |= wStream
	}
	if r.conn != nil {
		flags |= wConn
	}
	switch {
	case accepts:
		flags |= wAccept
	case r.work != nil:
		flags |= wOverlapped
	}
	var held kernel.Mask
	if flags&wStrict != 0 {
		held = p.held(r, h, kind == kernel.Stream)
		flags |= toldBits(held)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, wRelook, flags) })
	if held != 0 {
		r.heed(held)
	}
	watched := interest(r.filter)
	if flags&wOverlapped != 0 {
		watched = p.core.interest(is)
	}
	if !p.core.watching.Load() {
		p.core.watching.Store(true)
		p.parking.appoint(p.core)
	}
	c := &w.single[0]
	*c = kernel.Change{Handle: h, Action: kernel.Add, Token: token(is, index), Interest: watched}
	p.core.kernel.Poll(w.single[:], nil)
	if c.Status == kernel.Present {
		// The kernel kept the item of an earlier registration, which a duplicate kept alive.
		c.Action = kernel.Set
		p.core.kernel.Poll(w.single[:], nil)
	}
	if c.Status != kernel.Done {
		s.update(func(v uint64) uint64 { return nextEpoch(v, wRelook, 0) })
		s.reg.Store(nil)
		if o := p.core.observer.Load(); o != nil {
			o.finish(index, TraceLost)
		}
		p.core.claimed(index, false)
		if c.Status == kernel.Bad {
			return r.fail(h, ErrBadSocket, c.Err)
		}
		return r.fail(h, nil, c.Err)
	}
	p.core.claimed(index, true)
	if loser != nil {
		loser.displaced(index)
	}
	w.stripe.registrations.Add(1)
	p.own(r)
	if r.conn != nil {
		p.conns.hold(r.conn, w.raw, index)
	}
	return nil
}

// forget ends a registration whose socket is gone: no EventRemove comes (G9). Its claim is the
// caller's to give up.
func (p *port) forget(st *stripe, s *slot, index uint32) {
	was, _ := s.update(func(v uint64) uint64 { return nextEpoch(v, wRelook, 0) })
	p.release(st, s, was, index, TraceLost)
}

// probe asks the kernel about a number under its slot's lock: what Has does for an answer must not meet
// a change of the same number.
func (p *port) probe(index uint32) (has, busy bool, err error) {
	s := p.table.lookup(index)
	if s == nil {
		return false, false, nil
	}
	if !s.mu.TryLock() {
		return false, true, nil
	}
	defer s.mu.Unlock()
	has, err = p.core.kernel.Has(Socket(index))
	return has, false, err
}

// displaced ends the registration of a closed socket whose number another port has registered. Where the
// slot is locked, its own port is at it, and finds out; waiting for the lock could be waiting for each
// other, because the caller holds that of its own slot.
func (p *port) displaced(index uint32) {
	st := &p.core.stripes[0]
	if !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	s := p.table.lookup(index)
	if s == nil || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.word.Load()&wRegistered == 0 {
		return
	}
	if has, err := p.core.kernel.Has(Socket(index)); !has && err == nil {
		p.forget(st, s, index)
	}
}

// release lets go of what an ended registration held.
func (p *port) release(st *stripe, s *slot, was uint64, index uint32, how TraceKind) {
	if reg := s.reg.Swap(nil); reg != nil && reg.work != nil {
		p.abortAll(reg.work, index, net.ErrClosed)
	}
	if o := p.core.observer.Load(); o != nil {
		o.finish(index, how)
	}
	if was&wConn != 0 {
		p.conns.release(index)
	}
	st.registrations.Add(-1)
}
