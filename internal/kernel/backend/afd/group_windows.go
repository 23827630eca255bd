package afd

import (
	"runtime"

	"golang.org/x/sys/windows"
)

// groupSize limits the polls of one helper handle, because the time to cancel one of them grows with their number
// (trio#1280).
const groupSize = 32

// A group has two helper handles, one for each port, and the entries of the sockets that use them.
type group struct {
	ready   windows.Handle
	witness windows.Handle
	at      int // in Poller.groups
	used    int
	vacant  bool // in Poller.vacant
	pin     runtime.Pinner
	entries [groupSize]entry
}

// take returns a free entry.
func (p *Poller) take() (*entry, error) {
	if len(p.vacant) == 0 {
		g, err := p.newGroup()
		if err != nil {
			return nil, err
		}
		g.at = len(p.groups)
		p.groups = append(p.groups, g)
		g.vacant = true
		p.vacant = append(p.vacant, g)
	}
	g := p.vacant[len(p.vacant)-1]
	if g.used++; g.used == groupSize {
		g.vacant = false
		p.vacant = p.vacant[:len(p.vacant)-1]
	}
	for i := range g.entries {
		if e := &g.entries[i]; e.group == nil {
			e.group, e.ready.owner, e.witness.owner = g, e, e
			return e, nil
		}
	}
	panic("afd: a group has miscounted its entries")
}

// free frees an entry. An empty group is released if another group has a free entry.
func (p *Poller) free(e *entry) {
	g := e.group
	*e = entry{}
	g.used--
	if !g.vacant {
		g.vacant = true
		p.vacant = append(p.vacant, g)
	}
	if g.used > 0 || len(p.vacant) == 1 {
		return
	}
	for i, v := range p.vacant {
		if v == g {
			p.vacant = append(p.vacant[:i], p.vacant[i+1:]...)
			break
		}
	}
	last := len(p.groups) - 1
	p.groups[g.at] = p.groups[last]
	p.groups[g.at].at = g.at
	p.groups[last] = nil
	p.groups = p.groups[:last]
	g.close()
	g.pin.Unpin()
}

func (p *Poller) newGroup() (*group, error) {
	ready, err := newHelperOf(p.port)
	if err != nil {
		return nil, err
	}
	witness, err := newHelperOf(p.closings)
	if err != nil {
		windows.CloseHandle(ready)
		return nil, err
	}
	g := &group{ready: ready, witness: witness}
	g.pin.Pin(g)
	return g, nil
}

func (g *group) close() {
	windows.CloseHandle(g.ready)
	windows.CloseHandle(g.witness)
}
