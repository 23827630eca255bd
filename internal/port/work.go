package port

import (
	"time"

	"github.com/socknotify/socknotify/internal/backend"
)

// work handles a report of a socket with a Work. again reports that it put the slot on the recheck list.
//
// It holds the slot's lock. A call that finds the slot locked asks for a recheck instead: what its report says may have
// happened after the other call's last system call.
func (p *Port) work(w *Call, s *Slot, reg *Record, r *backend.Ready, out Entries) (n int, again bool) {
	held, err := reg.Work.Socket.Hold()
	if err != nil {
		return 0, false // the socket is closed, and its registration is about to end
	}
	defer held.Release() // after the unlock, because the last use closes the socket
	index := tokenIndex(r.Token)
	if !s.Mu.TryLock() {
		return 0, p.markRecheck(s, index, r.Token)
	}
	defer s.Mu.Unlock()
	was := s.Word.Load()
	if !sameEpoch(was, r.Token) || was&wEnabled == 0 || s.Reg.Load() != reg {
		w.stripe.stale.Add(1)
		return 0, false
	}
	more := false
	if was&wAccept != 0 {
		n, more = p.takeAccepted(w, s, reg, index, out)
	} else {
		n, more = p.operate(w, s, reg, held, r.Mask, out)
	}
	return n, more && p.markRecheck(s, index, r.Token)
}

// markRecheck puts a registration on the recheck list if it still has the token and is enabled.
func (p *Port) markRecheck(s *Slot, index uint32, token uint64) bool {
	for {
		was := s.Word.Load()
		if !sameEpoch(was, token) || was&wEnabled == 0 {
			return false
		}
		if was&wRecheck != 0 {
			return true
		}
		if s.Word.CompareAndSwap(was, was|wRecheck) {
			p.pushRecheck(s, index)
			return true
		}
	}
}

// later polls a socket again after a delay.
func (p *Port) later(d time.Duration, index uint32) {
	c := p.Core // not the port, which the program may drop
	time.AfterFunc(d, func() { c.resume(index) })
}

// resume handles a socket again after a pause.
func (p *Port) resume(index uint32) {
	if !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
	s := p.Table.Lookup(index)
	if reg := s.Reg.Load(); reg != nil && reg.Work != nil && reg.Work.Accept != nil {
		reg.Work.Accept.Paused.Store(false)
	}
	p.Recheck(s, index)
}
