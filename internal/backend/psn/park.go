package psn

import (
	"os"
	"time"
)

// Park implements backend.Poller. It blocks one thread in the system, without a limit: a deadline and a
// Wake post a packet, because the system's own time-outs are as coarse as its clock.
//
// No report is lost: whatever is queued ends the block, whenever it came, and what others have put into
// the stash since parked was set comes with a packet (unlock).
func (p *Poller) Park(until time.Time, look func() bool) error {
	p.parked.Store(true)
	defer p.unpark()
	if p.woken.Load() {
		return nil
	}
	if !until.IsZero() {
		limit := time.Until(until)
		if limit <= 0 {
			return nil
		}
		if p.timer == nil {
			p.timer = time.AfterFunc(limit, p.expired)
		} else {
			p.timer.Reset(limit)
		}
		defer p.timer.Stop()
	}
	if look() {
		return nil
	}
	n, code := p.sys.Process(p.port, nil, infinite, p.packet[:])
	if exhausted(code) {
		time.Sleep(time.Millisecond) // it may pass, and the caller looks again
		return nil
	}
	if failed(code) {
		return os.NewSyscallError("ProcessSocketNotifications", p.sys.Errno(code))
	}
	if code == success && n == 1 && p.packet[0].Key != wakeKey {
		p.mu.Lock()
		p.stash = append(p.stash, stashed{Entry: p.packet[0]})
		p.mu.Unlock()
	}
	return nil
}

func (p *Poller) unpark() {
	p.parked.Store(false)
	p.woken.Store(false) // whoever woke us is answered by our return
}

// Wake implements backend.Poller: woken stays until a Park has returned. It is set before parked is looked
// at here, and Park sets parked before it looks at woken, so one of them sees the other.
func (p *Poller) Wake() {
	if !p.woken.Swap(true) && p.parked.Load() {
		p.ring()
	}
}

// expired is the timer's. It may run late, beside another Park or after Close.
func (p *Poller) expired() {
	p.shut.Lock()
	defer p.shut.Unlock()
	if !p.closed && p.parked.Load() {
		p.ring()
	}
}

// ring posts the packet that ends a Park. If another call dequeues it, that one rings again. It fails
// where memory has run out, which may pass.
func (p *Poller) ring() {
	for range 1000 {
		if p.sys.Post(p.port, wakeKey) == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
