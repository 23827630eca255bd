package port

import (
	"net"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// forget ends a registration whose socket is gone, without an EventRemove (G9). The caller releases
// the ownership of the handle.
func (p *Port) forget(s *Slot, index uint32) {
	was, _ := s.update(func(v uint64) uint64 { return nextEpoch(v, wRecheck, 0) })
	p.release(s, was, index, false)
}

// release releases what an ended registration held.
func (p *Port) release(s *Slot, was uint64, index uint32, removed bool) {
	if reg := s.Reg.Swap(nil); reg != nil && reg.Work != nil && reg.Work.Operations != nil {
		reg.Work.Operations.Abort(net.ErrClosed)
		p.countWaiting(&p.Core.Stripes[index%Stripes], s, false)
	}
	if o := p.Core.Observer.Load(); o != nil {
		(*o).Ended(index, removed)
	}
	if was&wConn != 0 {
		p.conns.release(index)
	}
	p.Core.Stripes[index%Stripes].registrations.Add(-1)
}

// end is forget for a socket that another port may register.
func (p *Port) end(s *Slot, index uint32) {
	p.forget(s, index)
	p.Core.releaseHandle(index)
}

// unwatch is forget for a socket that the backend may still watch: it is open, or a duplicate or a
// poll in progress keeps it alive. The slot is locked.
func (p *Port) unwatch(s *Slot, index uint32) {
	p.forget(s, index)
	p.Core.Poller.Poll([]backend.Change{{Handle: Socket(index), Action: backend.Delete}}, nil)
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
	if reg == nil || reg.fd != t || s.word.Load()&wRegistered == 0 {
		return
	}
	p.unwatch(s, index)
	p.Core.releaseHandle(index)
}
