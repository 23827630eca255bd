// Package rooms lists the kernels that this system has, the default first.
package rooms

import "github.com/socknotify/socknotify/internal/kernel"

// A Room is one kernel: its name, and how to open a queue of it.
type Room struct {
	Name string
	Open func() (kernel.Poller, error)
}

// Options are what a port is made with.
type Options struct {
	// Backend is the name of a room in List. Empty: the user's choice, or the default.
	Backend string
	// Room goes before that, and need not be in List. Only tests have such rooms.
	Room *Room
	// Strict is for WithStrictEdge.
	Strict bool
}
