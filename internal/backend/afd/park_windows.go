package afd

import (
	"math"
	"time"
)

// Park implements backend.Poller. It blocks one thread.
//
// No report is lost: whatever completes has a packet in the port, and the packet that ends the block, the
// only one that Park takes, is held for the next harvest. There is no time-out of the system's, which would
// come up to a tick early or late; Go's timers are better.
func (p *Poller) Park(until time.Time, look func() bool) error {
	if !p.bell.enter() {
		return nil
	}
	defer p.bell.leave()
	if !until.IsZero() {
		p.timer.Reset(time.Until(until))
		defer p.timer.Stop()
	}
	if look() {
		return nil
	}
	for {
		n, err := dequeue(p.port, p.one[:], math.MaxUint32)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if p.one[0].key == keyBell && p.bell.heard() || p.one[0].key == keyPoll && p.hold(p.one[0].block) {
			return nil
		}
	}
}

// Wake implements backend.Poller.
func (p *Poller) Wake() { p.bell.ring() }
