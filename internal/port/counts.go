package port

import "sync/atomic"

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
