package psn

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Poller implements backend.Poller on one completion port.
type Poller struct {
	sys  *System
	port uintptr

	mu      sync.Mutex
	table   table
	leaving map[uintptr]*entry // by handle

	// The input of the next call of the system, and the packets that it dequeues.
	steps   []step
	regs    []Registration
	entries [128]Entry
	drained [64]Entry
	pair    [2]Registration   // of a separate call
	refused []*backend.Change // additions to try again

	pending   []pendingPacket
	first     int  // the index of the first pending packet that was not taken
	mark      int  // the length of pending at the last call
	wakeTaken bool // a packet of Wake was dequeued by another call than Park's

	parked atomic.Bool
	woken  atomic.Bool
	packet [1]Entry // used by the parked goroutine
	timer  *time.Timer

	shut   sync.Mutex // held to read closed, when no other call is running
	closed bool
}

// NewOn opens a Poller on a port of sys. It does not probe.
func NewOn(sys *System) (backend.Poller, error) {
	port, err := sys.OpenPort()
	if err != nil {
		return nil, err
	}
	p := &Poller{sys: sys, port: port, leaving: make(map[uintptr]*entry)}
	sys.pollers.addPort(p)
	return p, nil
}

// Edges is false: see the package comment.
func (p *Poller) Edges() bool { return false }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return p.sys.Describe(handle) }

// PollOne implements backend.Poller.
func (p *Poller) PollOne(handle uintptr) backend.Mask { return p.sys.PollOne(handle) }

// Has implements backend.Poller.
func (p *Poller) Has(handle uintptr) (bool, error) {
	p.mu.Lock()
	defer p.unlock()
	if e := p.table.byHandle(handle); e != nil && p.watches(e) {
		return true, nil
	}
	_, err := p.sys.Describe(handle)
	return false, err
}

// Poll implements backend.Poller: changes and harvest are one call of the system.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	p.mu.Lock()
	defer p.unlock()
	for i := range changes {
		c := &changes[i]
		if e := p.table.byHandle(c.Handle); len(p.steps) == maxSteps || e != nil && e.planned {
			p.flush(0)
			p.tryAgain()
		}
		p.plan(c)
	}
	n := 0
	if len(ready) > 0 {
		n = p.harvest(ready)
	} else {
		p.flush(0)
	}
	if p.tryAgain() && n < len(ready) {
		n += p.harvest(ready[n:])
	}
	return n
}

// unlock unlocks p.mu, and wakes the parked goroutine if packets are pending or its packet was taken.
func (p *Poller) unlock() {
	wake := p.wakeTaken || p.waiting() > 0
	p.wakeTaken = false
	p.mu.Unlock()
	if wake && p.parked.Load() {
		p.postWake()
	}
}

// Close implements backend.Poller. It removes all registrations: the system may keep a closed port while sockets
// are registered with it, and other ports could not register them.
func (p *Poller) Close() error {
	p.shut.Lock()
	p.closed = true
	p.shut.Unlock()
	p.removeAll()
	p.sys.pollers.leave(p)
	return p.sys.ClosePort(p.port)
}

func (p *Poller) removeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.leaving {
		p.describes(e) // forgets it if it was closed, because its packet may not come then
	}
	p.table.each(func(e *entry) { p.gone(e, true) })
	for tries, end := 0, time.Now().Add(removalWait); len(p.leaving) > 0 && (tries < leastTries || time.Now().Before(end)); tries++ {
		p.drain(1)
	}
}
