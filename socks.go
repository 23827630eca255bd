package socknotify

import (
	"net"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
)

// registerSock processes an entry that names a socket of package sock.
func (p *port) registerSock(w *call, r *entry) {
	t := r.tie
	if r.op == OpEnable && p.core.ownEdges && p.vouched(r) {
		w.saved++
		return
	}
	h, ok := t.Use()
	if !ok {
		kind := ErrBadSocket
		if r.op != OpEnable {
			kind = ErrNotRegistered // its Close has seen to that
		}
		*r.result = r.fail(noSocket, kind, net.ErrClosed)
		return
	}
	p.apply(w, r, h)
	if w.used = append(w.used, t); len(w.used) == batchSize {
		p.complete(w)
	}
}

// vouchedAlone processes an entry that is a call's only one where that needs nothing but the slot's word. No
// kernel is touched, so the call need not be counted in.
func (p *port) vouchedAlone(r *entry) bool {
	if r.op != OpEnable || r.tie == nil || !p.core.ownEdges || p.checksKeys ||
		p.core.closed.Load() || !r.enables() || !p.vouched(r) {
		return false
	}
	*r.result = nil
	p.core.stripes[r.tie.Handle()%stripes].saved.Add(1)
	runtime.KeepAlive(p)
	return true
}

// vouched enables without the kernel where the socket, or the program, vouches (X5). No use of the handle
// is counted: the registration is known by the tie.
func (p *port) vouched(r *entry) bool {
	t := r.tie
	turn := t.Turn()
	if !r.drained && !t.Drained(directions(r.filter)) {
		return false
	}
	index := t.Handle()
	if index > maxIndex {
		return false
	}
	s := p.table.lookup(uint32(index))
	if s == nil || !p.rearm(s, r) {
		return false
	}
	if !r.drained && t.Turn() != turn {
		// Meanwhile somebody else enabled it and was notified, and the word is what it was
		// before. What he was notified of may hold still.
		p.askAgain(s, uint32(index), wEnabled)
	}
	return true
}

// vouchedFor reports whether the socket of a registration vouches that nothing holds of its filter but for what the
// kernel has yet to report. The slot is locked.
func (s *slot) vouchedFor(word uint64) bool {
	reg := s.reg.Load()
	return reg != nil && reg.tie != nil && reg.tie.Drained(directions(wordFilter(word)))
}

// directions are those in which a socket must be drained to vouch for a filter. What a hang-up or an error
// leaves behind is received, so a filter of neither direction needs that one.
func directions(filter Events) tie.Dir {
	var d tie.Dir
	if filter&EventOut != 0 {
		d |= tie.Send
	}
	if filter&(EventIn|EventHangup) != 0 || d == 0 {
		d |= tie.Recv
	}
	return d
}

// notify begins a socket's turn, for a notification that says what a report does.
func notify(t *tie.Tie, m kernel.Mask) tie.Notice {
	return t.Notify(m&(kernel.Urgent|kernel.PeerClosed|kernel.Dead|kernel.Err) != 0, m&(kernel.Dead|kernel.Err) != 0)
}

// silenced are the directions in which a kernel without edges goes on only when the socket was drained.
// An error silences both until it has been received, or sent into.
func silenced(m kernel.Mask) tie.Dir {
	var d tie.Dir
	if m&kernel.Err != 0 {
		d = tie.Recv | tie.Send
	}
	if m&kernel.In != 0 {
		d |= tie.Recv
	}
	if m&kernel.Out != 0 {
		d |= tie.Send
	}
	return d
}

// own makes the socket of an entry that has been registered tell this port.
func (p *port) own(r *entry) {
	if t := r.tie; t != nil {
		t.Own(&p.core.owner)
	}
}

// askAgain puts a registration on the relook list if its word has all of some flags, and wakes a sleeper to
// see to it.
func (p *port) askAgain(s *slot, index uint32, flags uint64) {
	was, _ := s.update(func(v uint64) uint64 {
		if v&flags != flags {
			return v
		}
		return v | wRelook
	})
	if was&flags == flags {
		if was&wRelook == 0 {
			p.pushRelook(s, index)
		}
		p.parking.wakeOne(p.core, nil)
	}
}

// sockBlocked lets a kernel without edges go on after an edge: what was told has been drained (T2).
//
// A condition that stands though the call would have blocked (an error queue that nobody reads, a datagram
// socket shut for receiving) would be told again at once, and the port spin with its handler (E8). There
// the kernel is asked a while later.
func (p *port) sockBlocked(handle uintptr, d tie.Dir) {
	st := &p.core.stripes[0]
	if handle > maxIndex || !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	var told uint64
	if d&tie.Recv != 0 {
		told |= toldBits(kernel.In)
	}
	if d&tie.Send != 0 {
		told |= toldBits(kernel.Out)
	}
	index := uint32(handle)
	s := p.table.lookup(index)
	if s == nil {
		return
	}
	if p.stands(handle, s) {
		c := p.core // and not the port, which may be dropped
		time.AfterFunc(longWhile, func() { c.drained(index, told) })
		return
	}
	p.drained(index, told)
}

// stands tells of a socket whose call would have blocked that something holds all the same, and will not end.
func (p *port) stands(handle uintptr, s *slot) bool {
	m := p.core.kernel.Look(handle)
	return m&kernel.Err != 0 || s.word.Load()&wStream == 0 && m&(kernel.PeerClosed|kernel.Dead) != 0
}

// longWhile is how much later.
const longWhile = 250 * time.Millisecond

// drained has the kernel asked about conditions that had been told.
func (p *port) drained(index uint32, told uint64) {
	st := &p.core.stripes[0]
	if !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	if s := p.table.lookup(index); s != nil {
		s.update(func(v uint64) uint64 { return v &^ told })
		p.askAgain(s, index, wEnabled)
	}
}

// sockClosing ends the registration of a socket that the system is about to close (G9).
func (p *port) sockClosing(t *tie.Tie, handle uintptr) {
	st := &p.core.stripes[0]
	if handle > maxIndex || !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	index := uint32(handle)
	s := p.table.lookup(index)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reg := s.reg.Load()
	if reg == nil || reg.tie != t || s.word.Load()&wRegistered == 0 {
		return
	}
	p.forget(st, s, index)
	// The kernel too: a duplicate, or a poll under way, may keep the socket alive.
	p.core.kernel.Poll([]kernel.Change{{Handle: handle, Action: kernel.Delete}}, nil)
	p.core.unclaim(index)
}
