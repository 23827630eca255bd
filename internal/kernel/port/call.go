package port

import (
	"sync/atomic"
	"syscall"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// maxReports is the number of reports that one poll takes at most.
const maxReports = 128

// A Call is the state of one call inside the port. Calls are pooled, so that the steady state
// allocates nothing (C7).
type Call struct {
	port   *Port
	stripe *stripe
	batch  batch
	ready  [maxReports]backend.Ready
	single [1]backend.Change

	// queueFirst alternates between the queue and the backend when there is only one entry to fill
	// (Q2).
	queueFirst bool

	waiter waiter
	// pollOnce dequeues into out and reports whether there was anything. It is the argument of
	// backend.Poller.Park, made by the first lead.
	pollOnce func() bool
	out      Entries
	found    int

	// The entry whose connection's Control is running (see register.go).
	reg     Entry
	raw     syscall.RawConn
	held    bool          // the port holds the connection already
	inside  bool          // Control has run its function
	control func(uintptr) // that function, made by the first registerConn
	redo    []redo
	// used are the sockets of package sock that the entries name, until Complete.
	used []*fdstate.FD
	// saved counts fast enables, until Complete.
	saved uint64
	// spare is for the next connection that is accepted.
	spare *sock.Socket
	// deregisters is set for Deregister: instead of queueing an EventRemove, the removal stores its
	// record in deregistered.
	deregisters  bool
	deregistered *Record
}

// Begin starts a call. It returns nil if the port is closed.
func (p *Port) Begin() *Call {
	w, _ := p.pool.Get().(*Call)
	if w == nil {
		w = &Call{port: p, stripe: &p.Core.Stripes[p.calls.Add(1)%Stripes]}
		w.waiter.wake = make(chan struct{}, 1)
	}
	if !w.stripe.enter(p.Core) {
		p.pool.Put(w)
		return nil
	}
	return w
}

// End ends a call.
func (p *Port) End(w *Call) {
	w.stripe.leave(p.Core)
	p.pool.Put(w)
}

// A batch holds changes that have been made to slots but not yet to the backend, and the lock of
// every slot in it until flush (see batch.go).
type batch struct {
	n       int
	changes [batchSize]backend.Change
	items   [batchSize]item
}

const batchSize = 32

// An item is what settle needs besides the outcome of a change.
type item struct {
	Entry
	slot  *Slot
	was   uint64 // the word before the change
	index uint32
}

// A redo is an entry whose registration turned out to have ended. It is processed again once the
// slots of the batch are unlocked, because it may have to wait for another port.
type redo struct {
	Entry
	at Socket
}

// counts are the counts of a port, except those of its queue.
type counts struct {
	Registrations int64
	Notifications uint64
	Accepted      uint64
	Completions   uint64
	Removals      uint64
	Posts         uint64
	PostsDequeued uint64
	Queued        int64
	Waiting       int
	Wakeups       uint64
	Rearms        uint64
	FastEnables   uint64
	Stale         uint64
}

// A spread is the part of the counts that one stripe holds.
type spread struct {
	Inside        int64
	Notifications uint64
	Removals      uint64
	PostsDequeued uint64
	Rearms        uint64
	FastEnables   uint64
}

func (p *Port) Stats() counts {
	s := counts{Waiting: int(p.Waiters.Count()), Wakeups: p.Waiters.woken()}
	for i := range p.Core.Stripes {
		t := &p.Core.Stripes[i]
		s.Registrations += t.registrations.Load()
		s.Notifications += t.notifications.Load()
		s.Accepted += t.accepted.Load()
		s.Completions += t.completions.Load()
		s.Removals += t.removals.Load()
		s.PostsDequeued += t.dequeuedPosts.Load()
		s.Rearms += t.rearms.Load()
		s.FastEnables += t.saved.Load()
		s.Stale += t.stale.Load()
	}
	return s
}

func (p *Port) Spread(i int) spread {
	t := &p.Core.Stripes[i]
	return spread{
		t.inside.Load(), t.notifications.Load(), t.removals.Load(),
		t.dequeuedPosts.Load(), t.rearms.Load(), t.saved.Load(),
	}
}

// Stripes is the number of places in which calls are counted, so that processors do not share them.
const Stripes = 16

// A stripe counts calls inside the port and what they did. It fills two cache lines, because
// processors fetch lines in pairs.
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
	operating     atomic.Int64 // sockets whose operations began to wait, minus those that ended
	_             [128 - 11*8]byte
}

// enter counts a call in. False means that the port is closed, and that nothing of it may be used.
// The count is raised before Closed is read, and Close reads the count after it has set Closed, so
// one of the two sees the other.
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
