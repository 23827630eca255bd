// Package metric lists the metrics of a port, for the packages that export them.
package metric

import "github.com/socknotify/socknotify"

// A Port is a socknotify.Port with keys of any type.
type Port interface {
	Stats() socknotify.Stats
	Backend() string
}

// A Metric is one number of a port.
type Metric struct {
	Name    string // words joined by underscores
	Unit    string // the thing counted, in the singular
	Help    string
	Counter bool // the value only increases; otherwise it is a current number
	Value   func(*socknotify.Stats) int64
}

// All returns the metrics of a port.
func All() []Metric {
	return []Metric{
		{"registrations", "registration", "Present registrations, including those of closed sockets that the port has not noticed, and sockets with operations.", false,
			func(s *socknotify.Stats) int64 { return s.Registrations }},
		{"queued", "entry", "Posts, removals and completions that wait to be dequeued.", false,
			func(s *socknotify.Stats) int64 { return s.Queued }},
		{"waiting", "call", "Calls that wait in the port.", false,
			func(s *socknotify.Stats) int64 { return int64(s.Waiting) }},
		{"notifications", "notification", "Socket notifications dequeued, without removals.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Notifications) }},
		{"accepted", "connection", "Connections delivered by Accept, which are notifications too.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Accepted) }},
		{"completions", "completion", "Completions of overlapped operations, which are notifications too.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Completions) }},
		{"removals", "removal", "Removal notifications dequeued.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Removals) }},
		{"posts", "post", "Completions posted.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Posts) }},
		{"posts_dequeued", "post", "Posted completions dequeued.", true,
			func(s *socknotify.Stats) int64 { return int64(s.PostsDequeued) }},
		{"wakeups", "wakeup", "Waiting calls woken.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Wakeups) }},
		{"rearms", "enable", "Enables of existing registrations that made a system call.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Rearms) }},
		{"fast_enables", "enable", "Enables of existing registrations without a system call.", true,
			func(s *socknotify.Stats) int64 { return int64(s.FastEnables) }},
		{"stale_reports", "report", "Reports dropped because their registration had ended or changed.", true,
			func(s *socknotify.Stats) int64 { return int64(s.Stale) }},
	}
}
