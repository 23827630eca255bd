package port

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// Port returns the port, or nil if it is being collected.
func (c *Core) Port() *Port { return c.port.Value() }

// A Core is the part of a port that outlives it, if only for its cleanup: the backend and the
// counts, but no key. Nothing reachable from it leads back to the port, so a port that the program
// drops is collected.
type Core struct {
	Poller backend.Poller
	Edges  bool // backend.Edges()
	strict bool // WithStrictEdge
	// OwnEdges reports that an edge registration re-arms without the port knowing that the socket
	// was drained (T2): the backend has edges, and they are not strict.
	OwnEdges bool
	Backend  string
	id       uint32 // in owners
	// owner receives the events of sockets of package sock.
	owner fdstate.Owner
	// Observer is nil unless the port is observed.
	Observer atomic.Pointer[Observer]

	Closed atomic.Bool
	down   atomic.Bool  // closed, and no call is inside
	Jobs   atomic.Int64 // operations on files that a goroutine carries out
	// Completed is called, if it is set, when an operation has its result, before its completion
	// can be dequeued: with the operation, and locks of the port held. It must not lead to the
	// port.
	Completed func(op unsafe.Pointer)
	// Spare is called, if it is set, with an operation whose accept failed because the system had
	// no descriptor, and with locks of the port held. It may give one up and make the accept again.
	Spare   func(op unsafe.Pointer, accept func() error) error
	Files   atomic.Value // an io.Closer: the operations on files, once there have been some
	port    weak.Pointer[Port]
	Stripes [Stripes]stripe
	left    chan struct{} // receives when a call leaves a closed port
	once    sync.Once
	err     error // of closing the backend

	helper helper
	// HelpAfter is how long operations wait for a call that dequeues before the helper carries them
	// out. Only tests change it, before the first operation.
	HelpAfter time.Duration
	// Park is Poller.Park for the helper, unless it is nil. It may block while another Park, which
	// a report or a Wake ends, runs.
	Park func(until time.Time, poll func() bool) error
}

// Enter counts a call in that has no Call of its own. False means that the port is closed.
func (c *Core) Enter() bool { return c.Stripes[0].enter(c) }

// Leave ends such a call.
func (c *Core) Leave() { c.Stripes[0].leave(c) }

// A Port implements the contract without knowing the type of the keys. It is the first field of a
// socknotify.Port[K], so a weak pointer to it is a weak pointer to that.
type Port struct {
	Waiters  waiters // first, for its place in cache lines
	Core     *Core
	typed    Typed
	Table    table
	conns    connTable
	pool     sync.Pool // of *Call
	calls    atomic.Uint32
	rechecks atomic.Uint32 // head of the list of slots to be polled again: index + 1
	levels   levels
	// checksKeys is set if keys must be checked before they are compared.
	checksKeys bool
}

// Of returns the port inside a *socknotify.Port[K], for any K. Package socknotify sets it. The
// packages above it call it once for each port that they are given.
var Of func(p any) *Port

func (c *Core) SetStrict(strict bool) {
	c.strict = strict
	c.OwnEdges = c.Edges && !strict
}

// fail sets the Result of an entry.
func (p *Port) fail(r *Entry, h Socket, kind, err error) {
	*r.Result = p.typed.Fail(Failed{
		Op: r.Op, Socket: h, Conn: r.Conn != nil || r.FD != nil,
		Accept: r.Work != nil && r.Work.Accept != nil, Kind: kind, Err: err,
	})
}

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
