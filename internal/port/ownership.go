package port

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// claims tells, for the whole process, which port a handle is registered with (P5). A port is named
// by an id that dies with it, so a claim keeps no port alive.
var owners ownerTable

type ownerTable struct {
	pages pages[ownerPage]

	mu    sync.Mutex // over what follows
	ports map[uint32]*Core
	last  uint32
}

const ownerPageSize = 1024

// A claim is a port's id, shifted, and a bit that says that the port is about to add the handle to
// its kernel. Whoever sets the bit waits for nothing until it has cleared it.
type ownerPage [ownerPageSize]atomic.Uint32

const inTransit = 1

func (t *ownerTable) at(index uint32) *atomic.Uint32 {
	page, offset := int(index/ownerPageSize), index%ownerPageSize
	pg := t.pages.lookup(page)
	if pg == nil {
		pg = t.pages.make(page)
	}
	return &pg[offset]
}

// addPort gives a port its id.
func (t *ownerTable) addPort(c *Core) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ports == nil {
		t.ports = make(map[uint32]*Core)
	}
	for {
		t.last = (t.last + 1) & (1<<31 - 1)
		if _, used := t.ports[t.last]; !used && t.last != 0 {
			break
		}
	}
	c.id = t.last
	t.ports[c.id] = c
}

// removePort makes every claim of a port void.
func (t *ownerTable) removePort(c *Core) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ports, c.id)
}

func (t *ownerTable) port(id uint32) *Core {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ports[id]
}

// claim takes a handle for a port that is about to add it, and leaves the claim in transit. It fails
// with errOtherPort where another port's kernel still has the socket. Asking it under our transit
// bit decides for good: the other port needs the bit to add. A port that has lost its claim to the
// caller is returned, to be told once the transit is over.
func (c *Core) acquireHandle(index uint32, handle Socket) (loser *Core, err error) {
	word := owners.at(index)
	for {
		v := word.Load()
		if v&inTransit != 0 {
			runtime.Gosched()
			continue
		}
		if !word.CompareAndSwap(v, c.id<<1|inTransit) {
			continue
		}
		if owner := v >> 1; owner != 0 && owner != c.id {
			loser = owners.port(owner)
			has, busy, err := loser.has(index)
			if busy {
				word.Store(v) // the other port is at this very socket
				runtime.Gosched()
				continue
			}
			if has || err != nil {
				word.Store(v)
				if err == nil {
					err = ErrOtherPort
				}
				return nil, err
			}
		}
		return loser, nil
	}
}

// claimed ends the transit: the handle is the port's, or nobody's.
func (c *Core) endTransfer(index uint32, added bool) {
	var v uint32
	if added {
		v = c.id << 1
	}
	owners.at(index).Store(v)
}

// releaseHandle gives a handle up, unless another port has taken it over.
func (c *Core) releaseHandle(index uint32) {
	word := owners.at(index)
	for {
		v := word.Load()
		if v == c.id<<1 && word.CompareAndSwap(v, 0) || v>>1 != c.id && v&inTransit == 0 {
			return
		}
		// In transit: another port is asking our kernel, and may yet restore our claim.
		runtime.Gosched()
	}
}

// has reports whether the port's kernel watches the socket; a nil or closed port's does not. busy says
// that the port is changing its own registration for the number just now.
func (c *Core) has(index uint32) (has, busy bool, err error) {
	if c == nil || !c.Stripes[0].Enter(c) {
		return false, false, nil
	}
	defer c.Stripes[0].Leave(c)
	return c.probe(index)
}
