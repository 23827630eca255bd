package port

import (
	"io"
	"runtime"
	"weak"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// Init makes a port on a backend, which it owns from here on.
func (p *Port) Init(poller backend.Poller, name string, t Typed, q QueueEnds, checksKeys bool) {
	c := &Core{
		Poller: poller, Edges: poller.Edges(), OwnEdges: poller.Edges(), Backend: name,
		left: make(chan struct{}, 1), port: weak.Make(p), HelpAfter: HelpAfter,
	}
	c.owner = fdstate.Owner{
		Closing: func(t *fdstate.FD, handle uintptr) {
			if p := c.Port(); p != nil {
				p.sockClosing(t, handle)
			}
		},
		Blocked: func(handle uintptr, d fdstate.Dir) {
			if p := c.Port(); p != nil {
				p.sockBlocked(handle, d)
			}
		},
		ShutSend: func(t *fdstate.FD, handle uintptr) {
			if p := c.Port(); p != nil {
				p.sockShutSend(t, handle)
			}
		},
	}
	p.Core, p.typed, p.checksKeys = c, t, checksKeys
	p.Waiters.queue, p.Waiters.core = q, c
	owners.addPort(c)
}

// Close makes every call return, and waits until none is inside. The queue is closed already.
func (p *Port) Close() error {
	p.Waiters.close()
	err := p.Core.shut()
	if f := p.Core.Files.Load(); f != nil {
		f.(io.Closer).Close()
	}
	p.Table.pages.Drop()
	p.conns.drop()
	runtime.KeepAlive(p)
	return err
}

// shut closes the backend once no call is inside. Closed must be set, and every waiter woken.
// Concurrent callers wait for the first.
func (c *Core) shut() error {
	c.once.Do(func() {
		owners.removePort(c)
		for i := range c.Stripes {
			for c.Stripes[i].inside.Load() != 0 {
				<-c.left
			}
		}
		c.Observer.Store(nil)
		c.err = c.Poller.Close()
		c.down.Store(true) // last, because another port may take its operations then
	})
	return c.err
}

// Abandon is the cleanup of a port that was dropped without Close. No call can be inside, but the
// helper, which keeps no port reachable.
func (c *Core) Abandon() {
	c.Closed.Store(true)
	c.Poller.Wake()
	c.shut()
}
