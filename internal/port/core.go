package port

import (
	"sync"
	"sync/atomic"
	"weak"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// Port returns the port, or nil if it is being collected.
func (c *Core) Port() *Port { return c.port.Value() }

// A Core is the part of a port that outlives it, if only for its cleanup: the backend and the counts, but no key. Nothing
// reachable from it leads back to the port, so a port that the program drops is collected.
type Core struct {
	Poller backend.Poller
	Edges  bool // backend.Edges()
	strict bool // WithStrictEdge
	// OwnEdges reports that an edge registration re-arms without the port knowing that the socket was drained (T2): the
	// backend has edges, and they are not strict.
	OwnEdges bool
	Backend  string
	id       uint32 // in owners
	// probe asks the backend about a number for another port, if this one still exists.
	probe func(index uint32) (has, busy bool, err error)
	// owner receives the events of sockets of package sock.
	owner fdstate.Owner
	// resume retries a socket that the port accepts or operates on, if the port still exists.
	resume func(index uint32)
	// drained re-arms an edge registration, if the port still exists.
	drained func(index uint32, reported uint64)
	// transferred ends the registration of a number that another port has registered, if this port still exists.
	transferred func(index uint32)
	// Observer is nil unless the port is observed.
	Observer atomic.Pointer[Observer]

	// Watching is set by the first registration. Until then the backend has nothing to report, and a call waits for the
	// queue alone.
	Watching atomic.Bool

	Closed  atomic.Bool
	down    atomic.Bool  // closed, and no call is inside
	Jobs    atomic.Int64 // operations on files that a goroutine carries out
	Files   atomic.Value // an io.Closer: the operations on files, once there have been some
	port    weak.Pointer[Port]
	Stripes [Stripes]stripe
	left    chan struct{} // receives when a call leaves a closed port
	once    sync.Once
	err     error // of closing the backend
}

// Stripes is the number of places in which calls are counted, so that processors do not share them.
const Stripes = 16

// A stripe counts calls inside the port and what they did. It fills two cache lines, because processors fetch lines in
// pairs.
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

// enter counts a call in. False means that the port is closed, and that nothing of it may be used. The count is raised
// before Closed is read, and Close reads the count after it has set Closed, so one of the two sees the other.
func (s *stripe) enter(c *Core) bool {
	s.inside.Add(1)
	if c.Closed.Load() {
		s.leave(c)
		return false
	}
	return true
}

func (s *stripe) leave(c *Core) {
	if s.inside.Add(-1) == 0 && c.Closed.Load() {
		select {
		case c.left <- struct{}{}:
		default:
		}
	}
}

// Enter counts a call in that has no Call of its own. False means that the port is closed.
func (c *Core) Enter() bool { return c.Stripes[0].enter(c) }

// Leave ends such a call.
func (c *Core) Leave() { c.Stripes[0].leave(c) }

// shut closes the backend once no call is inside. Closed must be set, and every waiter woken. Concurrent callers wait for the
// first.
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
		c.down.Store(true) // last, because another port may take the operations of a port that is down
	})
	return c.err
}

// Abandon is the cleanup of a port that was dropped without Close. No call can be inside.
func (c *Core) Abandon() {
	c.Closed.Store(true)
	c.shut()
}
