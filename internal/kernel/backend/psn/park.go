package psn

import (
	"os"
	"time"
)

// Park implements backend.Poller. It blocks one thread in the system, without a timeout. A deadline and a
// Wake post a packet, because the system's own timeouts are as coarse as its clock.
//
// No report is lost. A queued packet ends the block, no matter when it was queued. If another goroutine has
// left pending packets since parked was set, it posts a packet (see unlock).
func (p *Poller) Park(until time.Time, poll func() bool) error {
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
	if poll() {
		return nil
	}
	n, code := p.sys.Process(p.port, nil, infinite, p.packet[:])
	if exhausted(code) {
		time.Sleep(time.Millisecond) // it may be temporary, and the caller polls again
		return nil
	}
	if failed(code) {
		return os.NewSyscallError("ProcessSocketNotifications", p.sys.Errno(code))
	}
	if code == success && n == 1 && p.packet[0].Key != wakeKey {
		p.mu.Lock()
		p.pending = append(p.pending, pendingPacket{Entry: p.packet[0]})
		p.mu.Unlock()
	}
	return nil
}

func (p *Poller) unpark() {
	p.parked.Store(false)
	p.woken.Store(false) // the return of Park answers the Wake
}

// Wake implements backend.Poller. woken stays set until a Park has returned. Wake sets woken before it reads
// parked, and Park sets parked before it reads woken, so at least one of them sees the other.
func (p *Poller) Wake() {
	if !p.woken.Swap(true) && p.parked.Load() {
		p.postWake()
	}
}

// expired is called by the timer. It may run late, concurrently with another Park or after Close.
func (p *Poller) expired() {
	p.shut.Lock()
	defer p.shut.Unlock()
	if !p.closed && p.parked.Load() {
		p.postWake()
	}
}

// postWake posts the packet that ends a Park. If another call dequeues the packet, that call posts it again.
// Posting fails if memory has run out, which may be temporary.
func (p *Poller) postWake() {
	for range 1000 {
		if p.sys.Post(p.port, wakeKey) == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
