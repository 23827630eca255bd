package port

import (
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/sock"
)

// A Work is what harvesters do for a socket in the place of delivering its reports: accept a listener's
// connections (Accept), or carry out the operations that wait for it (Recv and so on).
type Work struct {
	Socket *sock.Socket
	Accept *Acceptor // or nil
	operations
}

// like tells whether two registrations are of one kind: for reports that are delivered (nil), accepts or
// operations.
func (a *Work) like(b *Work) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.Accept == nil) == (b.Accept == nil)
}

// work does what a report is for. again says that it put the slot on the recheck list.
//
// The slot's lock is held meanwhile. Whoever finds it locked leaves word for a look after that: what the
// report tells may have come after the other's last call.
func (p *Port) work(w *Call, s *Slot, reg *Record, r *backend.Ready, out Entries) (n int, again bool) {
	held, err := reg.Work.Socket.Hold()
	if err != nil {
		return 0, false // closed: its registration is about to end
	}
	defer held.Release() // after the unlock: it may be the one that closes
	index := tokenIndex(r.Token)
	if !s.Mu.TryLock() {
		return 0, p.markRelook(s, index, r.Token)
	}
	defer s.Mu.Unlock()
	was := s.Word.Load()
	if !SameEpoch(was, r.Token) || was&WEnabled == 0 || s.Reg.Load() != reg {
		w.stripe.stale.Add(1)
		return 0, false
	}
	more := false
	if was&WAccept != 0 {
		n, more = p.takeAccepted(w, s, reg, index, out)
	} else {
		reg.noteReported(r.Mask)
		n, more = p.operateOn(w, s, reg, held, r.Mask, out, nil)
	}
	return n, more && p.markRelook(s, index, r.Token)
}

// markRelook puts a registration on the recheck list, if it is still that of a token and enabled.
func (p *Port) markRelook(s *Slot, index uint32, token uint64) bool {
	for {
		was := s.Word.Load()
		if !SameEpoch(was, token) || was&WEnabled == 0 {
			return false
		}
		if was&WRecheck != 0 {
			return true
		}
		if s.Word.CompareAndSwap(was, was|WRecheck) {
			p.pushRecheck(s, index)
			return true
		}
	}
}

// later has the kernel asked about a socket again in a while.
func (p *Port) later(d time.Duration, index uint32) {
	c := p.Core // and not the port, which may be dropped
	time.AfterFunc(d, func() { c.resume(index) })
}

// resume tries a socket again after a pause.
func (p *Port) resume(index uint32) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) {
		return
	}
	defer st.Leave(p.Core)
	s := p.Table.Lookup(index)
	if reg := s.Reg.Load(); reg != nil && reg.Work != nil && reg.Work.Accept != nil {
		reg.Work.Accept.Paused.Store(false)
	}
	p.Recheck(s, index, WEnabled)
}
