package socknotify

import (
	"time"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/sock"
)

// A work is what harvesters do for a socket in the place of delivering its reports: accept a listener's
// connections (Accept), or carry out the operations that wait for it (Recv and so on).
type work struct {
	socket *sock.Socket
	accept *acceptor // or nil
	operations
}

// like tells whether two registrations are of one kind: for reports that are delivered (nil), accepts or
// operations.
func (a *work) like(b *work) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.accept == nil) == (b.accept == nil)
}

// work does what a report is for. again says that it put the slot on the relook list.
//
// The slot's lock is held meanwhile. Whoever finds it locked leaves word for a look after that: what the
// report tells may have come after the other's last call.
func (p *port) work(w *call, s *slot, reg *record, r *kernel.Ready, out entries) (n int, again bool) {
	held, err := reg.work.socket.Hold()
	if err != nil {
		return 0, false // closed: its registration is about to end
	}
	defer held.Release() // after the unlock: it may be the one that closes
	index := tokenIndex(r.Token)
	if !s.mu.TryLock() {
		return 0, p.markRelook(s, index, r.Token)
	}
	defer s.mu.Unlock()
	was := s.word.Load()
	if !sameEpoch(was, r.Token) || was&wEnabled == 0 || s.reg.Load() != reg {
		w.stripe.stale.Add(1)
		return 0, false
	}
	more := false
	if was&wAccept != 0 {
		n, more = p.takeAccepted(w, s, reg, index, out)
	} else {
		reg.heed(r.Mask)
		n, more = p.operateOn(w, s, reg, held, r.Mask, out, nil)
	}
	return n, more && p.markRelook(s, index, r.Token)
}

// markRelook puts a registration on the relook list, if it is still that of a token and enabled.
func (p *port) markRelook(s *slot, index uint32, token uint64) bool {
	for {
		was := s.word.Load()
		if !sameEpoch(was, token) || was&wEnabled == 0 {
			return false
		}
		if was&wRelook != 0 {
			return true
		}
		if s.word.CompareAndSwap(was, was|wRelook) {
			p.pushRelook(s, index)
			return true
		}
	}
}

// later has the kernel asked about a socket again in a while.
func (p *port) later(d time.Duration, index uint32) {
	c := p.core // and not the port, which may be dropped
	time.AfterFunc(d, func() { c.resume(index) })
}

// resume tries a socket again after a pause.
func (p *port) resume(index uint32) {
	st := &p.core.stripes[0]
	if !st.enter(p.core) {
		return
	}
	defer st.leave(p.core)
	s := p.table.lookup(index)
	if reg := s.reg.Load(); reg != nil && reg.work != nil && reg.work.accept != nil {
		reg.work.accept.paused.Store(false)
	}
	p.askAgain(s, index, wEnabled)
}
