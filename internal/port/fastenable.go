package port

import (
	"net"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// registerSock processes an entry that names a socket of package sock.
func (p *Port) registerSock(w *call, r *Entry) {
	t := r.FD
	if r.Op == OpEnable && p.Core.OwnEdges && p.Vouched(r) {
		w.saved++
		return
	}
	h, ok := t.Use()
	if !ok {
		kind := ErrBadSocket
		if r.Op != OpEnable {
			kind = ErrNotRegistered // its Close has seen to that
		}
		p.fail(r, NoSocket, kind, net.ErrClosed)
		return
	}
	p.apply(w, r, h)
	if w.used = append(w.used, t); len(w.used) == batchSize {
		p.Complete(w)
	}
}

// VouchedAlone processes an entry that is a call's only one where that needs nothing but the slot's word. No
// kernel is touched, so the call need not be counted in.
func (p *Port) VouchedAlone(r *Entry) bool {
	if r.Op != OpEnable || r.FD == nil || !p.Core.OwnEdges || p.checksKeys ||
		p.Core.Closed.Load() || !r.Enables() || !p.Vouched(r) {
		return false
	}
	*r.Result = nil
	p.Core.Stripes[r.FD.Handle()%Stripes].saved.Add(1)
	runtime.KeepAlive(p)
	return true
}

// Vouched enables without the kernel where the socket, or the program, vouches (X5). No use of the handle
// is counted: the registration is known by the fd.
func (p *Port) Vouched(r *Entry) bool {
	t := r.FD
	turn := t.Generation()
	if !r.Drained && !t.Drained(Directions(r.Filter)) {
		return false
	}
	index := t.Handle()
	if index > MaxIndex {
		return false
	}
	s := p.Table.Lookup(uint32(index))
	if s == nil || !p.Rearm(s, r) {
		return false
	}
	if !r.Drained && t.Generation() != turn {
		// Meanwhile somebody else enabled it and was notified, and the word is what it was
		// before. What he was notified of may hold still.
		p.AskAgain(s, uint32(index), WEnabled)
	}
	return true
}

// vouchedFor reports whether the socket of a registration vouches that nothing holds of its filter but for what the
// kernel has yet to report. The slot is locked.
func (s *Slot) vouchedFor(word uint64) bool {
	reg := s.Reg.Load()
	return reg != nil && reg.fd != nil && reg.fd.Drained(Directions(wordFilter(word)))
}

// Directions are those in which a socket must be drained to vouch for a filter. What a hang-up or an error
// leaves behind is received, so a filter of neither direction needs that one.
func Directions(filter Events) fdstate.Dir {
	var d fdstate.Dir
	if filter&EventOut != 0 {
		d |= fdstate.Send
	}
	if filter&(EventIn|EventHangup) != 0 || d == 0 {
		d |= fdstate.Recv
	}
	return d
}

// notify begins a socket's turn, for a notification that says what a report does.
func notify(t *fdstate.FD, m backend.Mask) fdstate.NewGeneration {
	return t.Advance(m&(backend.Urgent|backend.PeerClosed|backend.Dead|backend.Err) != 0, m&(backend.Dead|backend.Err) != 0)
}

// silenced are the directions in which a kernel without edges goes on only when the socket was drained.
// An error silences both until it has been received, or sent into.
func silenced(m backend.Mask) fdstate.Dir {
	var d fdstate.Dir
	if m&backend.Err != 0 {
		d = fdstate.Recv | fdstate.Send
	}
	if m&backend.In != 0 {
		d |= fdstate.Recv
	}
	if m&backend.Out != 0 {
		d |= fdstate.Send
	}
	return d
}

// own makes the socket of an entry that has been registered tell this port.
func (p *Port) own(r *Entry) {
	if t := r.FD; t != nil {
		t.SetOwner(&p.Core.owner)
	}
}

// AskAgain puts a registration on the relook list if its word has all of some flags, and wakes a sleeper to
// see to it.
func (p *Port) AskAgain(s *Slot, index uint32, flags uint64) {
	was, _ := s.update(func(v uint64) uint64 {
		if v&flags != flags {
			return v
		}
		return v | WRelook
	})
	if was&flags == flags {
		if was&WRelook == 0 {
			p.pushRelook(s, index)
		}
		p.Parking.WakeOne(p.Core, nil)
	}
}

// sockBlocked lets a kernel without edges go on after an edge: what was told has been drained (T2).
//
// A condition that stands though the call would have blocked (an error queue that nobody reads, a datagram
// socket shut for receiving) would be told again at once, and the port spin with its handler (E8). There
// the kernel is asked a while later.
func (p *Port) sockBlocked(handle uintptr, d fdstate.Dir) {
	st := &p.Core.Stripes[0]
	if handle > MaxIndex || !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	var told uint64
	if d&fdstate.Recv != 0 {
		told |= toldBits(backend.In)
	}
	if d&fdstate.Send != 0 {
		told |= toldBits(backend.Out)
	}
	index := uint32(handle)
	s := p.Table.Lookup(index)
	if s == nil {
		return
	}
	if p.stands(handle, s) {
		c := p.Core // and not the port, which may be dropped
		time.AfterFunc(longWhile, func() { c.drained(index, told) })
		return
	}
	p.drained(index, told)
}

// stands tells of a socket whose call would have blocked that something holds all the same, and will not end.
func (p *Port) stands(handle uintptr, s *Slot) bool {
	m := p.Core.Poller.Look(handle)
	return m&backend.Err != 0 || s.Word.Load()&wStream == 0 && m&(backend.PeerClosed|backend.Dead) != 0
}

// longWhile is how much later.
const longWhile = 250 * time.Millisecond

// drained has the kernel asked about conditions that had been told.
func (p *Port) drained(index uint32, told uint64) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	if s := p.Table.Lookup(index); s != nil {
		s.update(func(v uint64) uint64 { return v &^ told })
		p.AskAgain(s, index, WEnabled)
	}
}

// sockClosing ends the registration of a socket that the system is about to close (G9).
func (p *Port) sockClosing(t *fdstate.FD, handle uintptr) {
	st := &p.Core.Stripes[0]
	if handle > MaxIndex || !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	index := uint32(handle)
	s := p.Table.Lookup(index)
	if s == nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	reg := s.Reg.Load()
	if reg == nil || reg.fd != t || s.Word.Load()&WRegistered == 0 {
		return
	}
	p.forget(st, s, index)
	// The kernel too: a duplicate, or a poll under way, may keep the socket alive.
	p.Core.Poller.Poll([]backend.Change{{Handle: handle, Action: backend.Delete}}, nil)
	p.Core.unclaim(index)
}
