package port

import (
	"errors"
	"net"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// Register processes one entry.
func (p *Port) Register(w *Call, r *Entry) {
	*r.Result = nil
	if r.Op != OpEnable || !Sound(r.Filter, r.Trigger) {
		if err := r.Check(); err != nil {
			p.fail(r, r.Handle, ErrInvalid, err)
			return
		}
	}
	if r.Op == OpEnable && p.checksKeys {
		if err := p.typed.CheckKey(r.Key); err != nil {
			p.fail(r, r.Handle, ErrInvalid, err)
			return
		}
	}
	switch {
	case r.Op == OpNone:
	case r.Conn != nil:
		p.registerConn(w, r)
	case r.FD != nil:
		p.registerSock(w, r)
	case r.Handle == 0:
		// Nearly always Conn was forgotten. On Unix 0 is the standard input.
		p.fail(r, NoSocket, ErrInvalid, Invalid("Conn", "nil, and Handle is 0", nil))
	default:
		p.apply(w, r, r.Handle)
	}
}

// fail sets the Result of an entry.
func (p *Port) fail(r *Entry, h Socket, kind, err error) {
	*r.Result = p.typed.Fail(Failed{r.Op, h, r.Conn != nil || r.FD != nil, r.Work != nil && r.Work.Accept != nil, kind, err})
}

// settleNew sets the Result of an entry that was to make a registration.
func (p *Port) settleNew(r *Entry, h Socket, f *failure) {
	if f != nil {
		p.fail(r, h, f.kind, f.err)
	}
}

// A failure says why a registration was not made: a kind of this package, and a cause. Either may be nil.
type failure struct{ kind, err error }

func failed(kind, err error) *failure { return &failure{kind, err} }

// apply processes one entry for a handle. Its Result may come only with the batch's flush.
func (p *Port) apply(w *Call, r *Entry, h Socket) {
	if h > MaxIndex {
		_, err := p.Core.Poller.Describe(h)
		p.fail(r, h, ErrBadSocket, err)
		return
	}
	index := uint32(h)
	if r.Op == OpEnable {
		s := p.Table.Lookup(index)
		if s != nil && r.Drained && r.Conn != nil && p.Core.OwnEdges && p.rearm(s, r.Filter, r.Trigger, true, nil, r.Key) {
			w.saved++
			return
		}
		if s == nil {
			// No page for what is no socket: its number may be anything.
			if _, err := p.Core.Poller.Describe(h); err != nil {
				p.fail(r, h, ErrBadSocket, err)
				return
			}
			s = p.Table.at(index)
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
	word := s.Word.Load()
	if word&WRegistered == 0 || word&wOverlapped != 0 {
		s.Mu.Unlock()
		p.missing(r, h)
		return
	}
	c := backend.Change{Handle: h, Action: backend.Suppress}
	var is uint64
	if r.Op == OpRemove {
		// From here on nothing is dequeued for it (G4); what is in flight is dropped (G5).
		c.Action = backend.Delete
		_, is = s.update(func(v uint64) uint64 { return nextEpoch(v, WRecheck, 0) })
	} else {
		_, is = s.update(func(v uint64) uint64 {
			return nextEpoch(v, flagMask&^(WEnabled|wPending), wSuppressed)
		})
	}
	c.Token = token(is, index)
	p.add(w, item{*r, s, word, index}, c)
}

// newRecord returns the record of the registration that an entry makes.
func (p *Port) newRecord(r *Entry) *Record {
	rec := p.typed.NewRecord(r.Key)
	rec.fd, rec.Work = r.FD, r.Work
	return rec
}

// missing is the Result of an operation on a handle without registration.
func (p *Port) missing(r *Entry, h Socket) {
	if _, err := p.Core.Poller.Describe(h); err != nil {
		p.fail(r, h, ErrBadSocket, err)
		return
	}
	p.fail(r, h, ErrNotRegistered, nil)
}

// rearm enables without the kernel, for a caller that vouches (X5): the kernel has had nothing to
// report since, it watches the same conditions, and it has not been silenced. All of that is in the
// word that a harvester must swap to change it, so no report can slip in between: one that was
// harvested before has left wPending, one that is harvested later finds the registration enabled.
//
// The caller is either the program, or a socket that must be the one that is registered.
func (p *Port) rearm(s *Slot, filter Events, trigger Trigger, conn bool, fd *fdstate.FD, key unsafe.Pointer) bool {
	for {
		was := s.Word.Load()
		if was&(WRegistered|wPending|wSuppressed|wWorked) != WRegistered || wordFilter(was) != filter {
			return false
		}
		if conn && was&wConn == 0 {
			return false // the port has yet to take hold of the connection
		}
		reg := s.Reg.Load()
		if reg == nil || fd != nil && reg.fd != fd || !p.typed.SameKey(reg, key) {
			return false
		}
		is := was&^(wOneShot|wEdge) | armed(filter, trigger)
		if is&(wEdge|wOneShot) == 0 {
			return false // persistent level: the kernel must look
		}
		if s.Word.CompareAndSwap(was, is) {
			return true
		}
	}
}

// armed is armed, for a registration that goes to the kernel.
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

// enable processes OpEnable under the slot's lock, which it releases or gives to the batch.
func (p *Port) enable(w *Call, s *Slot, r *Entry, h Socket) {
	index := uint32(h)
	if w.batch.n > 0 && p.differs(s, r) {
		// It may have to be created, and wait for another port's answer meanwhile; and a call of that port
		// for a slot in the batch.
		s.Mu.Unlock()
		p.flush(w)
		s.Mu.Lock()
	}
	was := s.Word.Load()
	if was&WRegistered == 0 {
		p.settleNew(r, h, p.create(w, s, r, h))
		s.Mu.Unlock()
		return
	}
	reg := s.Reg.Load()
	switch {
	case was&wOverlapped != 0 && reg.Work.idle():
		p.dissociate(w, s, index)
		p.settleNew(r, h, p.create(w, s, r, h))
		s.Mu.Unlock()
		return
	case was&wOverlapped != 0:
		p.settleNew(r, h, p.mismatch(w, s, r, h, ErrInvalid, errOperating))
		s.Mu.Unlock()
		return
	case !p.typed.SameKey(reg, r.Key):
		p.settleNew(r, h, p.mismatch(w, s, r, h, ErrKeyMismatch, nil))
		s.Mu.Unlock()
		return
	case !reg.Work.like(r.Work):
		p.settleNew(r, h, p.mismatch(w, s, r, h, ErrInvalid, errAccepting))
		s.Mu.Unlock()
		return
	}
	if t := r.FD; t != nil && reg.fd != t || r.Work != nil && reg.Work.Accept.AtOnce != r.Work.Accept.AtOnce {
		s.Reg.Store(p.newRecord(r))
	}
	// Enabled first, in the kernel after: the other way round, another goroutine could harvest the
	// report that the change causes and find the registration still disabled.
	flags := p.armed(r)
	var held backend.Mask
	if flags&wStrict != 0 {
		held = p.held(r, h, was&wStream != 0)
		flags |= reportedBits(held)
	}
	_, is := s.update(func(v uint64) uint64 {
		return nextEpoch(v, wKind|WRecheck, flags)
	})
	if held != 0 {
		r.noteReported(held)
	}
	w.stripe.rearms.Add(1)
	p.add(w, item{*r, s, was, index}, backend.Change{
		Handle: h, Action: backend.Set, Token: token(is, index), Interest: interest(r.Filter),
	})
}

// differs tells whether an entry is for another registration than there is.
func (p *Port) differs(s *Slot, r *Entry) bool {
	if s.Word.Load()&WRegistered == 0 {
		return true
	}
	reg := s.Reg.Load()
	return !reg.Work.like(r.Work) || !p.typed.SameKey(reg, r.Key)
}

// mismatch is for an entry that the registration does not fit: an error, unless the registration is one of a
// socket that is no more (G12).
func (p *Port) mismatch(w *Call, s *Slot, r *Entry, h Socket, kind, why error) *failure {
	has, err := p.Core.Poller.Has(h)
	switch {
	case has:
		return failed(kind, why)
	case err != nil:
		p.forget(w.stripe, s, uint32(h))
		p.Core.releaseHandle(uint32(h))
		return failed(ErrBadSocket, err)
	}
	p.forget(w.stripe, s, uint32(h))
	return p.create(w, s, r, h)
}

// create makes a registration in an unregistered slot, under its lock. The kernel is told at once, not
// with the batch, because of the claim: whoever holds one in transit must not wait for others.
func (p *Port) create(w *Call, s *Slot, r *Entry, h Socket) *failure {
	index := uint32(h)
	kind := backend.Stream
	if t := r.FD; t == nil || t.Kind()&fdstate.Accepted == 0 {
		var err error
		if kind, err = p.Core.Poller.Describe(h); err != nil {
			return failed(ErrBadSocket, err)
		}
	}
	accepts := r.Work != nil && r.Work.Accept != nil
	if accepts && kind != backend.Listener {
		return failed(ErrInvalid, errNoListener)
	}
	loser, err := p.Core.acquireHandle(index, h)
	switch {
	case errors.Is(err, ErrOtherPort):
		return failed(ErrOtherPort, nil)
	case err != nil:
		return failed(nil, err)
	}
	s.Reg.Store(p.newRecord(r))
	if o := p.Core.Observer.Load(); o != nil {
		o.begin(index)
	}
	flags := p.armed(r)
	if kind == backend.Stream {
		flags |= wStream
	}
	if r.Conn != nil {
		flags |= wConn
	}
	switch {
	case accepts:
		flags |= WAccept
	case r.Work != nil:
		flags |= wOverlapped
	}
	var held backend.Mask
	if flags&wStrict != 0 {
		held = p.held(r, h, kind == backend.Stream)
		flags |= reportedBits(held)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, WRecheck, flags) })
	if held != 0 {
		r.noteReported(held)
	}
	watched := interest(r.Filter)
	if flags&wOverlapped != 0 {
		watched = p.Core.interest(is)
	}
	if !p.Core.Watching.Load() {
		p.Core.Watching.Store(true)
		p.Waiters.appointLeader(p.Core)
	}
	c := &w.single[0]
	*c = backend.Change{Handle: h, Action: backend.Add, Token: token(is, index), Interest: watched, Listens: kind == backend.Listener}
	p.Core.Poller.Poll(w.single[:], nil)
	if c.Status == backend.Present {
		// The kernel kept the item of an earlier registration, which a duplicate kept alive.
		c.Action = backend.Set
		p.Core.Poller.Poll(w.single[:], nil)
	}
	if c.Status != backend.Done {
		s.update(func(v uint64) uint64 { return nextEpoch(v, WRecheck, 0) })
		s.Reg.Store(nil)
		if o := p.Core.Observer.Load(); o != nil {
			o.finish(index, traceLost)
		}
		p.Core.endTransfer(index, false)
		if c.Status == backend.Bad {
			return failed(ErrBadSocket, c.Err)
		}
		return failed(nil, c.Err)
	}
	p.Core.endTransfer(index, true)
	if loser != nil {
		loser.transferred(index)
	}
	w.stripe.registrations.Add(1)
	p.own(r)
	if r.Conn != nil {
		p.conns.hold(r.Conn, w.raw, index)
	}
	return nil
}

// forget ends a registration whose socket is gone: no EventRemove comes (G9). Its claim is the
// caller's to give up.
func (p *Port) forget(st *stripe, s *Slot, index uint32) {
	was, _ := s.update(func(v uint64) uint64 { return nextEpoch(v, WRecheck, 0) })
	p.release(st, s, was, index, traceLost)
}

// Probe asks the kernel about a number under its slot's lock: what Has does for an answer must not meet
// a change of the same number.
func (p *Port) Probe(index uint32) (has, busy bool, err error) {
	s := p.Table.Lookup(index)
	if s == nil {
		return false, false, nil
	}
	if !s.Mu.TryLock() {
		return false, true, nil
	}
	defer s.Mu.Unlock()
	has, err = p.Core.Poller.Has(Socket(index))
	return has, false, err
}

// transferred ends the registration of a closed socket whose number another port has registered. Where the
// slot is locked, its own port is at it, and finds out; waiting for the lock could be waiting for each
// other, because the caller holds that of its own slot.
func (p *Port) transferred(index uint32) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	s := p.Table.Lookup(index)
	if s == nil || !s.Mu.TryLock() {
		return
	}
	defer s.Mu.Unlock()
	if s.Word.Load()&WRegistered == 0 {
		return
	}
	if has, err := p.Core.Poller.Has(Socket(index)); !has && err == nil {
		p.forget(st, s, index)
	}
}

// release lets go of what an ended registration held.
func (p *Port) release(st *stripe, s *Slot, was uint64, index uint32, how traceKind) {
	if reg := s.Reg.Swap(nil); reg != nil && reg.Work != nil {
		p.abortAll(reg.Work, index, net.ErrClosed)
	}
	if o := p.Core.Observer.Load(); o != nil {
		o.finish(index, how)
	}
	if was&wConn != 0 {
		p.conns.release(index)
	}
	st.registrations.Add(-1)
}
