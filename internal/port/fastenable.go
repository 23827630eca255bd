package port

import (
	"unsafe"

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
		if !fd.Drained(directions(filter)) {
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

// own makes the port the owner of the FD of a registered entry.
func (p *Port) own(r *Entry) {
	if t := r.FD; t != nil {
		t.SetOwner(&p.Core.owner)
	}
}

// rearm enables without a system call (X5). It needs three things: the backend has reported nothing since the last enable,
// it watches the same conditions, and it is not suppressed. All three are in the word that a harvester must swap to change
// them, so no report is lost: a report harvested before has set wPending, and one harvested later finds the registration
// enabled.
//
// If fd is not nil, the registration must be of that socket. fd is nil if the caller has set Drained.
func (p *Port) rearm(s *Slot, filter Events, trigger Trigger, conn bool, fd *fdstate.FD, key unsafe.Pointer) bool {
	for {
		was := s.Word.Load()
		if was&(wRegistered|wPending|wSuppressed|wWorked) != wRegistered || wordFilter(was) != filter {
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
		if s.Word.CompareAndSwap(was, is) {
			return true
		}
	}
}
