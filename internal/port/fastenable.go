package port

import (
	"net"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// registerSock processes an entry that names a socket of package sock.
func (p *Port) registerSock(w *Call, r *Entry) {
	t := r.FD
	h, ok := t.Use()
	if !ok {
		kind := ErrBadSocket
		if r.Op != OpEnable {
			kind = ErrNotRegistered // its Close has ended the registration
		}
		p.fail(r, NoSocket, kind, net.ErrClosed)
		return
	}
	p.apply(w, r, h)
	if w.used = append(w.used, t); len(w.used) == batchSize {
		p.Complete(w)
	}
}

// FastEnable carries out an OpEnable that needs no system call, because the program (drained) or the socket of package
// sock (fd, or nil) knows that nothing holds of the filter (X5). False says that nothing was done. No use of the handle
// is counted: a registration is known by its FD, and for any other socket the program promises that it is open.
//
// w is nil for a call that has nothing else to do; it is not counted in, because it makes no system call. FastEnable takes
// the values that it needs, rather than an Entry, because making that would cost as much as the rest.
func (p *Port) FastEnable(w *Call, fd *fdstate.FD, handle Socket, filter Events, trigger Trigger, drained bool, key unsafe.Pointer) bool {
	if handle > MaxIndex || !p.Core.OwnEdges || !Sound(filter, trigger) {
		return false
	}
	var turn uint64
	if !drained {
		turn = fd.Generation()
		if !fd.Drained(Directions(filter)) {
			return false
		}
	}
	s := p.Table.Lookup(uint32(handle))
	if s == nil || p.checksKeys && p.typed.CheckKey(key) != nil || !p.rearm(s, filter, trigger, false, fd, key) {
		return false
	}
	if !drained && fd.Generation() != turn {
		// Another goroutine has enabled the registration and was notified since, and the word is what it was before.
		// The condition that it was notified of may still hold.
		p.Recheck(s, uint32(handle), WEnabled)
	}
	if w != nil {
		w.saved++
	} else {
		p.Core.Stripes[handle%Stripes].saved.Add(1)
	}
	return true
}

// drainedFor reports whether the socket of a registration vouches that nothing holds of its filter but for what the
// kernel has yet to report. The slot is locked.
func (s *Slot) drainedFor(word uint64) bool {
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

// Recheck puts a registration on the recheck list if its word has all of some flags, and wakes a sleeper to
// see to it.
func (p *Port) Recheck(s *Slot, index uint32, flags uint64) {
	was, _ := s.update(func(v uint64) uint64 {
		if v&flags != flags {
			return v
		}
		return v | WRecheck
	})
	if was&flags == flags {
		if was&WRecheck == 0 {
			p.pushRecheck(s, index)
		}
		p.Waiters.WakeOne(p.Core, nil)
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
	var reported uint64
	if d&fdstate.Recv != 0 {
		reported |= reportedBits(backend.In)
	}
	if d&fdstate.Send != 0 {
		reported |= reportedBits(backend.Out)
	}
	index := uint32(handle)
	s := p.Table.Lookup(index)
	if s == nil {
		return
	}
	if p.persists(handle, s) {
		c := p.Core // and not the port, which may be dropped
		time.AfterFunc(recheckDelay, func() { c.drained(index, reported) })
		return
	}
	p.drained(index, reported)
}

// stands tells of a socket whose call would have blocked that something holds all the same, and will not end.
func (p *Port) persists(handle uintptr, s *Slot) bool {
	m := p.Core.Poller.Look(handle)
	return m&backend.Err != 0 || s.Word.Load()&wStream == 0 && m&(backend.PeerClosed|backend.Dead) != 0
}

// recheckDelay is how much later.
const recheckDelay = 250 * time.Millisecond

// drained has the kernel asked about conditions that had been told.
func (p *Port) drained(index uint32, reported uint64) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	if s := p.Table.Lookup(index); s != nil {
		s.update(func(v uint64) uint64 { return v &^ reported })
		p.Recheck(s, index, WEnabled)
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
	p.Core.releaseHandle(index)
}
