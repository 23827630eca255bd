package psn

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
)

// Poller implements backend.Poller on one completion port.
type Poller struct {
	sys  *System
	port uintptr

	mu      sync.Mutex
	table   table
	leaving map[uintptr]*entry // by handle

	// What the next call of the system is to do, and what it dequeues.
	steps   []step
	regs    []Registration
	entries [128]Entry
	drained [64]Entry
	pair    [2]Registration   // of a call beside that
	refused []*backend.Change // additions to be tried again

	stash []stashed
	first int  // of the stash
	mark  int  // its length at the last call
	rang  bool // a packet that was to end a Park was dequeued elsewhere

	parked atomic.Bool
	woken  atomic.Bool
	packet [1]Entry // the parked goroutine's
	timer  *time.Timer

	shut   sync.Mutex // held to look at closed, where no call is under way
	closed bool
}

// NewOn opens a port of a system. It does not probe.
func NewOn(sys *System) (backend.Poller, error) {
	port, err := sys.OpenPort()
	if err != nil {
		return nil, err
	}
	p := &Poller{sys: sys, port: port, leaving: make(map[uintptr]*entry)}
	sys.pollers.addPort(p)
	return p, nil
}

// Edges is false: see the package's documentation.
func (p *Poller) Edges() bool { return false }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return p.sys.Describe(handle) }

// Look implements backend.Poller.
func (p *Poller) Look(handle uintptr) backend.Mask { return p.sys.Look(handle) }

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

// unlock tells the parked goroutine of what is in the stash, or was meant for it.
func (p *Poller) unlock() {
	ring := p.rang || p.waiting() > 0
	p.rang = false
	p.mu.Unlock()
	if ring && p.parked.Load() {
		p.ring()
	}
}

// Close implements backend.Poller. It removes what is registered: the system may keep a closed port for as
// long as sockets are registered with it, and so keep them from other ports.
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
		p.describes(e) // if it was closed, its packet may never come
	}
	p.table.each(func(e *entry) { p.gone(e, true) })
	for end := time.Now().Add(lastWords); len(p.leaving) > 0 && time.Now().Before(end); {
		p.drain(1)
	}
}

// lastWords is how long a Close waits for the packets that confirm removals.
const lastWords = 100 * time.Millisecond
