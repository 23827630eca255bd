package port

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/sparse"
)

// owners records, for the whole process, which port owns a handle: the port that it is registered
// with (P5). It names a port by an ID, so it keeps no port alive.
var owners ownerTable

type ownerTable struct {
	pages sparse.Pages[ownerPage]

	mu    sync.Mutex // guards the following
	ports map[uint32]*Core
	last  uint32
}

const ownerPageSize = 1024

// An ownerPage has a word for each handle: the ID of the port that owns it, shifted, and a bit that
// is set while ownership is in transfer, because a port is about to add the handle to its backend.
// A call that has set the bit waits for nothing until it has cleared it.
type ownerPage [ownerPageSize]atomic.Uint32

const inTransfer = 1

func (t *ownerTable) at(index uint32) *atomic.Uint32 {
	return &t.pages.At(int(index / ownerPageSize))[index%ownerPageSize]
}

// addPort gives a port its ID.
func (t *ownerTable) addPort(c *Core) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ports == nil {
		t.ports = make(map[uint32]*Core)
	}
	for {
		t.last = (t.last + 1) & (1<<31 - 1)
		if _, used := t.ports[t.last]; !used && t.last != 0 {
			break
		}
	}
	c.id = t.last
	t.ports[c.id] = c
}

// removePort voids all ownership of a port.
func (t *ownerTable) removePort(c *Core) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ports, c.id)
}

func (t *ownerTable) port(id uint32) *Core {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ports[id]
}

// acquireHandle makes a port the owner of a handle that it is about to add, and leaves the
// ownership in transfer. It fails with ErrOtherPort if the backend of another port still watches
// the socket. The answer stays true while the transfer bit is set, because the other port would
// need the bit to add the handle. If another port has lost the ownership, that port is returned;
// call its transferred once the transfer has ended.
func (c *Core) acquireHandle(index uint32, handle Socket) (previous *Core, err error) {
	word := owners.at(index)
	for {
		v := word.Load()
		if v&inTransfer != 0 {
			runtime.Gosched()
			continue
		}
		if !word.CompareAndSwap(v, c.id<<1|inTransfer) {
			continue
		}
		if owner := v >> 1; owner != 0 && owner != c.id {
			previous = owners.port(owner)
			has, busy, err := previous.has(index)
			if busy {
				word.Store(v) // the other port is changing its registration
				runtime.Gosched()
				continue
			}
			if has || err != nil {
				word.Store(v)
				if err == nil {
					err = ErrOtherPort
				}
				return nil, err
			}
		}
		return previous, nil
	}
}

// endTransfer ends a transfer. If the handle was not added, it has no owner.
func (c *Core) endTransfer(index uint32, added bool) {
	var v uint32
	if added {
		v = c.id << 1
	}
	owners.at(index).Store(v)
}

// releaseHandle releases the ownership of a handle, unless another port has acquired it.
func (c *Core) releaseHandle(index uint32) {
	word := owners.at(index)
	for {
		v := word.Load()
		if v == c.id<<1 && word.CompareAndSwap(v, 0) || v>>1 != c.id && v&inTransfer == 0 {
			return
		}
		// In transfer: another port is asking this one, and may give the ownership back.
		runtime.Gosched()
	}
}

// has reports whether the port's backend watches the socket; that of a nil or closed port does not.
// busy reports that the port is changing its own registration of the number.
func (c *Core) has(index uint32) (has, busy bool, err error) {
	if c == nil || !c.Enter() {
		return false, false, nil
	}
	defer c.Leave()
	if p := c.Port(); p != nil {
		return p.probeForTransfer(index)
	}
	return false, false, nil
}

// probeForTransfer answers another port that asks for a number. A socket without operations in
// flight is released (O11).
func (p *Port) probeForTransfer(index uint32) (has, busy bool, err error) {
	if s := p.Table.Lookup(index); s != nil && s.word.Load()&wOverlapped != 0 && s.Mu.TryLock() {
		if reg := s.Reg.Load(); s.word.Load()&wOverlapped != 0 && reg.Work.idle() {
			p.unwatch(s, index)
		}
		s.Mu.Unlock()
	}
	return p.probe(index)
}

// probe asks the backend whether it still watches a number. The slot is locked during the call, so
// that the question does not overlap a change of the same number.
func (p *Port) probe(index uint32) (has, busy bool, err error) {
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

// transferred ends the registration of a closed socket whose number another port has registered. If
// the slot is locked, the call that holds it will find the socket gone. Waiting for the lock could
// deadlock, because the caller holds the lock of its own slot.
func (c *Core) transferred(index uint32) {
	p := c.Port()
	if p == nil || !c.Enter() {
		return
	}
	defer c.Leave()
	s := p.Table.Lookup(index)
	if s == nil || !s.Mu.TryLock() {
		return
	}
	defer s.Mu.Unlock()
	if s.word.Load()&wRegistered == 0 {
		return
	}
	if has, err := p.Core.Poller.Has(Socket(index)); !has && err == nil {
		p.forget(s, index)
	}
}

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

// own makes the port the owner of the FD of a registered entry.
func (p *Port) own(r *Entry) {
	if t := r.FD; t != nil {
		t.SetOwner(&p.Core.owner)
	}
}
