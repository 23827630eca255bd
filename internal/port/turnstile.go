package port

import (
	"sync"
	"sync/atomic"
)

// A Turnstile is a lock with a count. The zero value is free and counts nothing.
//
// It is for what takes no longer than a few stores, and differs from a sync.Mutex beside an atomic counter in two
// ways. Whoever leaves changes the count by the same instruction that frees the lock: most of what a short critical
// section costs is its locked instructions. And whoever finds the lock held looks again a few times before it sleeps.
// With more goroutines than processors a sync.Mutex does not, and once some sleep, each that leaves wakes
// one that will find the lock held again; so that they cost many times what they came for.
//
// Why no sleeper is left behind. It sets turnstileCrowd in a state that says held, and sleeps, under the crowd's mu.
// So whoever holds the lock finds the flag when it leaves, and wakes all that sleep, under mu. It is cleared there
// alone.
type Turnstile struct {
	State atomic.Uint64         // the count, above the flags
	crowd atomic.Pointer[crowd] // of the first that had to sleep. It is apart, so that what is guarded can be beside state
}

// A crowd is where those sleep who want to enter.
type crowd struct {
	mu   sync.Mutex
	cond sync.Cond // its L is mu
}

const (
	turnstileHeld  = 1
	TurnstileCrowd = 2
	TurnstileShift = 2

	// How often a held turnstile is looked at before one sleeps, and how long it is left alone before each look, about a
	// microsecond. A look takes the cache line from whoever holds it. With short pauses the line changes processors
	// with each who enters, and that takes longer than what they do there; with long ones a processor goes through
	// some fifty times meanwhile.
	turnstileLooks = 8
	turnstilePause = 3000 // turns of an empty loop
)

// Count is what those have made of it who have left.
func (t *Turnstile) Count() uint64 { return t.State.Load() >> TurnstileShift }

func (t *Turnstile) Enter() {
	if s := t.State.Load(); s&turnstileHeld != 0 || !t.State.CompareAndSwap(s, s|turnstileHeld) {
		t.wait()
	}
}

// Leave lets the next one in, and changes the count.
func (t *Turnstile) Leave(by int) {
	if t.State.Add(uint64(by)<<TurnstileShift-turnstileHeld)&TurnstileCrowd != 0 {
		t.wake()
	}
}

func (t *Turnstile) wait() {
	for range turnstileLooks {
		for range turnstilePause {
		}
		if s := t.State.Load(); s&turnstileHeld == 0 && t.State.CompareAndSwap(s, s|turnstileHeld) {
			return
		}
	}
	c := t.crowd.Load()
	if c == nil {
		c = new(crowd)
		c.cond.L = &c.mu
		if !t.crowd.CompareAndSwap(nil, c) {
			c = t.crowd.Load()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		s := t.State.Load()
		switch {
		case s&turnstileHeld == 0:
			if t.State.CompareAndSwap(s, s|turnstileHeld) {
				return
			}
		case s&TurnstileCrowd != 0 || t.State.CompareAndSwap(s, s|TurnstileCrowd):
			c.cond.Wait()
		}
	}
}

func (t *Turnstile) wake() {
	c := t.crowd.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.State.And(^uint64(TurnstileCrowd))
	c.cond.Broadcast()
}
