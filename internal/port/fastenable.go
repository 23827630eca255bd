package port

import (
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// FastEnable carries out an OpEnable without a system call, if the program (drained) or the socket of package sock (fd,
// which may be nil) knows that no condition of the filter holds (X5). False means that nothing was done. No use of the
// handle is counted: a registration is known by its FD, and for any other socket the program promises that it is open.
//
// w is nil if the call does nothing else. Such a call is not counted in, because it makes no system call. FastEnable takes
// single values rather than an Entry, because making an Entry would cost as much as the rest.
func (p *Port) FastEnable(w *Call, fd *fdstate.FD, handle Socket, filter Events, trigger Trigger, drained bool, key unsafe.Pointer) bool {
	if handle > MaxIndex || !p.Core.OwnEdges || !sound(filter, trigger) {
		return false
	}
	var generation uint64
	if !drained {
		generation = fd.Generation()
		if !fd.Drained(Directions(filter)) {
			return false
		}
	}
	s := p.Table.Lookup(uint32(handle))
	if s == nil || p.checksKeys && p.typed.CheckKey(key) != nil || !p.rearm(s, filter, trigger, false, fd, key) {
		return false
	}
	if !drained && fd.Generation() != generation {
		// Another goroutine has enabled the registration and was notified in between, and the word has become what it was.
		// The condition that it was notified of may still hold.
		p.Recheck(s, uint32(handle))
	}
	if w != nil {
		w.saved++
	} else {
		p.Core.Stripes[handle%Stripes].saved.Add(1)
	}
	return true
}

// drainedFor reports whether the registration's socket knows that no condition of the filter holds, except those that the
// backend has yet to report. The slot is locked.
func (s *Slot) drainedFor(word uint64) bool {
	reg := s.Reg.Load()
	return reg != nil && reg.fd != nil && reg.fd.Drained(Directions(wordFilter(word)))
}

// Directions returns the directions in which a socket must be drained for a filter. A hang-up and an error are found by
// receiving, so a filter with neither direction needs that one.
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

// suppressedBy returns the directions in which a backend without edges reports again only after the socket was drained. An
// error suppresses both until it has been received, or sent into.
func suppressedBy(m backend.Mask) fdstate.Dir {
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

// own makes the port the owner of the FD of a registered entry.
func (p *Port) own(r *Entry) {
	if t := r.FD; t != nil {
		t.SetOwner(&p.Core.owner)
	}
}

// Recheck puts a registration on the recheck list if it is enabled, and wakes a waiter to poll it.
func (p *Port) Recheck(s *Slot, index uint32) {
	if p.markRecheck(s, index, s.Word.Load()) {
		p.Waiters.WakeOne(p.Core, nil)
	}
}

// sockBlocked re-arms an edge registration on a backend without edges: a call on the socket would have blocked, so the
// reported condition has been drained (T2).
//
// Some conditions persist although a call would have blocked: an error queue that is not read, or a datagram socket that
// was shut down for receiving. Reported again at once they would make the port and its handler spin (E8), so those are
// polled after a delay.
func (p *Port) sockBlocked(handle uintptr, d fdstate.Dir) {
	if handle > MaxIndex || !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
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
		c := p.Core // not the port, which the program may drop
		time.AfterFunc(recheckDelay, func() { c.drained(index, reported) })
		return
	}
	p.drained(index, reported)
}

// persists reports whether a condition holds that neither receiving nor sending ends. A call would have blocked.
func (p *Port) persists(handle uintptr, s *Slot) bool {
	m := p.Core.Poller.PollOne(handle)
	return m&backend.Err != 0 || s.Word.Load()&wStream == 0 && m&(backend.PeerClosed|backend.Dead) != 0
}

// recheckDelay is the delay before a condition that persists is polled again.
const recheckDelay = 250 * time.Millisecond

// drained polls again for conditions that had been reported.
func (p *Port) drained(index uint32, reported uint64) {
	if !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
	if s := p.Table.Lookup(index); s != nil {
		s.update(func(v uint64) uint64 { return v &^ reported })
		p.Recheck(s, index)
	}
}

// sockClosing ends the registration of a socket that the system is about to close (G9).
func (p *Port) sockClosing(t *fdstate.FD, handle uintptr) {
	if handle > MaxIndex || !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
	index := uint32(handle)
	s := p.Table.Lookup(index)
	if s == nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	reg := s.Reg.Load()
	if reg == nil || reg.fd != t || s.Word.Load()&wRegistered == 0 {
		return
	}
	p.forget(s, index)
	// The backend must forget it too: a duplicate, or a poll in progress, may keep the socket alive.
	p.Core.Poller.Poll([]backend.Change{{Handle: handle, Action: backend.Delete}}, nil)
	p.Core.releaseHandle(index)
}
