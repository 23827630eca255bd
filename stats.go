package socknotify

import "runtime"

// Stats are a port's counts since it was made, but for those that say now (X6). Each is exact on its
// own; together they are not of one instant.
type Stats struct {
	Registrations int64  // registrations now, including those of sockets that were closed since, and sockets that operations wait for
	Notifications uint64 // socket notifications dequeued, without removals
	Accepted      uint64 // of these, connections that Accept delivered
	Completions   uint64 // of these, completions of overlapped operations
	Removals      uint64 // EventRemove notifications dequeued
	Posts         uint64 // completions posted
	PostsDequeued uint64 // posted completions dequeued
	Queued        int64  // posts, removals and completions waiting now
	Waiting       int    // calls asleep now
	Wakeups       uint64 // sleepers woken for queued work, or to watch the kernel
	Rearms        uint64 // enables of existing registrations that asked the kernel
	RearmsSaved   uint64 // enables that cost no system call (X5)
	Stale         uint64 // kernel reports dropped because their registration was over or changed
}

// Stats returns the port's counts. It may be called at any time, also after Close.
func (p *Port[K]) Stats() Stats {
	s := Stats(p.port.Stats())
	s.Posts, s.Queued = p.keys.queue.posted(), p.keys.queue.size()
	runtime.KeepAlive(p)
	return s
}
