package afd

import (
	"math"
	"time"
)

// Park implements backend.Poller. It blocks one thread.
//
// No report is lost. Each completed poll has a packet in the port, and the packet that ends the block, the only one
// that Park takes, is held for the next harvest. Park does not use a timeout of the system, which would end up to a
// clock tick early or late; Go's timers are more precise.
func (p *Poller) Park(until time.Time, poll func() bool) error {
	if !p.waker.enter() {
		return nil
	}
	defer p.waker.leave()
	if !until.IsZero() {
		p.timer.Reset(time.Until(until))
		defer p.timer.Stop()
	}
	if poll() {
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
		if p.one[0].key == keyWake && p.waker.received() || p.one[0].key == keyPoll && p.hold(p.one[0].block) {
			return nil
		}
	}
}

// Wake implements backend.Poller.
func (p *Poller) Wake() { p.waker.wake() }
