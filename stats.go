package socknotify

import "runtime"

// Stats are a port's counts since it was made, except for those of the present. Each count is exact, but they are not taken
// at the same instant.
type Stats struct {
	Registrations int64  // present registrations, including those of closed sockets that the port has not noticed, and sockets with operations
	Notifications uint64 // socket notifications dequeued, without removals
	Accepted      uint64 // of these, connections accepted
	Completions   uint64 // of these, completions of operations
	Removals      uint64 // EventRemove notifications dequeued
	Posts         uint64 // completions posted
	PostsDequeued uint64 // posted completions dequeued
	Queued        int64  // posts, removals and completions that wait at present
	Waiting       int    // calls that wait at present
	Wakeups       uint64 // waiters woken
	Rearms        uint64 // enables of existing registrations that made a system call
	FastEnables   uint64 // enables of existing registrations without a system call
	Stale         uint64 // reports dropped because their registration had ended or changed
}

// Stats returns the port's counts. It may be called at any time, also after Close.
func (p *Port[K]) Stats() Stats {
	s := Stats(p.port.Stats())
	s.Posts, s.Queued = p.keys.queue.posted(), p.keys.queue.size()
	runtime.KeepAlive(p)
	return s
}
