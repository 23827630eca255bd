package observe

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/port"
)

const ringSize = 4096

// A ring holds the latest entries. No writer waits: one that finds its cell in use by another, which is a whole ring ahead
// or behind, drops its entry.
type ring struct {
	head  atomic.Uint64 // number of entries begun
	cells [ringSize]cell
}

// A cell holds the entry with the number state/2 - 1. An odd state means that the entry is being written.
type cell struct {
	state                   atomic.Uint64
	what, socket, id, datum atomic.Uint64
}

func (r *ring) add(what, socket, id, datum uint64) {
	n := r.head.Add(1) - 1
	c := &r.cells[n%ringSize]
	was := c.state.Load()
	busy := 2*n + 1
	if was&1 != 0 || was > busy || !c.state.CompareAndSwap(was, busy) {
		return
	}
	c.what.Store(what)
	c.socket.Store(socket)
	c.id.Store(id)
	c.datum.Store(datum)
	c.state.Store(busy + 1)
}

type cellState int

const (
	cellRead cellState = iota
	cellLost           // overwritten
	cellBusy           // incomplete
)

// read copies the entry with a number. The copy is whole if the state is the same before and after.
func (c *cell) read(n uint64, e *traceEntry) cellState {
	done := 2*n + 2
	state := c.state.Load()
	if state == done {
		what := c.what.Load()
		*e = traceEntry{
			At: int64(what >> 16), Kind: traceKind(what >> 8), Events: port.Events(what & 0xff),
			Handle: port.Socket(c.socket.Load()), ID: c.id.Load(), Data: uintptr(c.datum.Load()),
		}
		if c.state.Load() == done {
			return cellRead
		}
		return cellLost
	}
	if state > done {
		return cellLost
	}
	return cellBusy
}
