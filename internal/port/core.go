package port

import (
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// A Core is the part of a port that outlives it, if only for its cleanup: it holds the kernel's
// objects and no key. Nothing reachable from it leads back to the port.
type Core struct {
	Poller backend.Poller
	// Batcher is the kernel, if it is one; and least what it says.
	Batcher backend.Batcher
	least   int

	Edges  bool // backend.Edges()
	strict bool // WithStrictEdge
	// OwnEdges tells that edges begin anew by themselves, without the port being told that the socket was
	// drained (T2): the kernel has them, and they are not strict.
	OwnEdges bool
	Backend  string
	id       uint32 // in claims
	// probe asks the port's kernel about a number, if the port still exists.
	probe func(index uint32) (has, busy bool, err error)
	// owner is what sockets of package sock tell of themselves.
	owner fdstate.Owner
	// resume tells the port, if it still exists, that a socket it works on may be tried again.
	resume func(index uint32)
	// drained tells the port, if it still exists, to go on with an edge.
	drained func(index uint32, reported uint64)
	// transferred tells the port, if it still exists, that another one has registered a number.
	transferred func(index uint32)
	// Observer is what is recorded for those who observe; nil while nobody does.
	Observer atomic.Pointer[Observer]

	// Watching says that a socket has been registered. Until then the kernel has nothing to report, and a
	// wait is one for the queue alone.
	Watching atomic.Bool

	Closed  atomic.Bool
	down    atomic.Bool  // closed, nobody is inside, and the kernel has no buffer
	jobs    atomic.Int64 // operations on files that have been given to a goroutine
	Stripes [Stripes]stripe
	left    chan struct{} // a call left a closed port
	once    sync.Once
	err     error // of closing the kernel
	Watch   watch
}

// Stripes is the number of places that calls are counted in, so that cores do not share them.
const Stripes = 16

// A stripe counts calls inside the port and what they did. It fills two cache lines, because
// processors fetch them in pairs.
type stripe struct {
	inside        atomic.Int64
	registrations atomic.Int64 // created minus ended
	notifications atomic.Uint64
	removals      atomic.Uint64
	dequeuedPosts atomic.Uint64
	stale         atomic.Uint64
	rearms        atomic.Uint64
	saved         atomic.Uint64
	accepted      atomic.Uint64
	completions   atomic.Uint64
	_             [128 - 10*8]byte
}

// Enter counts a call in; false says that the port is closed, and nothing of it may be touched.
// Counting comes before looking: Close looks at the count after it has set closed.
func (s *stripe) Enter(c *Core) bool {
	s.inside.Add(1)
	if c.Closed.Load() {
		s.Leave(c)
		return false
	}
	return true
}

func (s *stripe) Leave(c *Core) {
	if s.inside.Add(-1) == 0 && c.Closed.Load() {
		select {
		case c.left <- struct{}{}:
		default:
		}
	}
}

// shut closes the kernel's objects once nobody is inside, and then has what the kernel had given back, if anybody is
// there for that. closed must be set, and whoever waits inside must have been woken. Later callers wait for the first.
func (c *Core) shut(giveBack func()) error {
	c.once.Do(func() {
		owners.removePort(c)
		c.Watch.close(c)
		for i := range c.Stripes {
			for c.Stripes[i].inside.Load() != 0 {
				<-c.left
			}
		}
		c.err = c.Poller.Close()
		if giveBack != nil {
			giveBack()
		}
		c.down.Store(true) // not before: an operation of a port that is down is another port's to take
	})
	return c.err
}

// Abandon is the cleanup of a port that was dropped without Close: nobody can be inside.
func (c *Core) Abandon() {
	c.Closed.Store(true)
	if f, ok := c.Poller.(backend.Files); ok && f.Transferring() {
		go c.shut(nil) // which waits for the kernel
		return
	}
	c.shut(nil)
}
