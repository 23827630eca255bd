package port

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
		t.inside.Load(), t.notifications.Load(), t.removals.Load(), t.dequeuedPosts.Load(), t.rearms.Load(), t.saved.Load(),
	}
}
