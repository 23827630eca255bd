package psn

import (
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// A pollerSet has the open Pollers of a system. Its mu is locked before that of a Poller, never after.
type pollerSet struct {
	mu  sync.Mutex
	all map[*Poller]struct{}
}

func (s *pollerSet) addPort(p *Poller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*Poller]struct{})
	}
	s.all[p] = struct{}{}
}

func (s *pollerSet) leave(p *Poller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, p)
}

// ending reports whether a registration of a handle with any port may be about to end: it was removed, but the
// packet of the removal was not dequeued, or its port is being closed. ending dequeues such packets.
func (s *pollerSet) ending(handle uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := false
	for p := range s.all {
		p.mu.Lock()
		if p.leaving[handle] != nil {
			pending = true
			p.drain(0)
		}
		if e := p.table.byHandle(handle); e != nil && p.watches(e) {
			pending = true
		}
		p.unlock()
	}
	return pending
}

// An addition that is refused because of a registration which is ending is tried again for at least addWait and at least
// leastTries times. Such a registration ends within microseconds, or when a goroutine that has just left Park gets to
// run. Close waits for at least removalWait and leastTries times for the packets of its removals. The time alone is not
// enough, because the process may have been stopped.
var (
	addWait     = time.Second
	removalWait = 100 * time.Millisecond
)

const leastTries = 100

// tryAgain tries the refused additions again and reports whether there were any. It unlocks p.mu while it waits.
func (p *Poller) tryAgain() bool {
	refused := p.refused
	p.refused = nil
	for _, c := range refused {
		p.tryAdd(c)
	}
	return len(refused) > 0
}

func (p *Poller) tryAdd(c *backend.Change) {
	pause := 10 * time.Microsecond
	end := time.Now().Add(addWait)
	for tries := 1; ; tries++ {
		p.unlock()
		pending := p.sys.pollers.ending(c.Handle)
		p.mu.Lock()
		if e := p.table.byHandle(c.Handle); e != nil {
			c.Status, c.Err = backend.Present, errPresent
			return
		}
		e := p.table.create(c.Handle)
		if e == nil {
			p.miss(c)
			return
		}
		e.arm(c)
		o := p.one(e, opEnable, c.Interest)
		if o.ok() {
			c.Status, c.Err = backend.Done, nil
			p.arrived(c.Handle)
			return
		}
		p.drop(e)
		if !pending || tries >= leastTries && time.Now().After(end) {
			p.refuse(c, o.first)
			return
		}
		p.unlock()
		time.Sleep(pause)
		pause = min(2*pause, time.Millisecond)
		p.mu.Lock()
	}
}
