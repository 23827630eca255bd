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

// A probed room is one that this system may have or not, and never the default. Probing it is left until
// somebody asks: a sandbox may take the attempt amiss.
type probed struct {
	Room
	probe func() error
}

// List returns the rooms of this system.
func List() []Room {
	list := sure()
	for _, r := range unsure() {
		if r.probe() == nil {
			list = append(list, r.Room)
		}
	}
	return list
}

// Default returns the first room; ok is false where there is none.
func Default() (r Room, ok bool) {
	if list := sure(); len(list) > 0 {
		return list[0], true
	}
	return r, false
}

// Find returns the room of a name, and probes no other.
func Find(name string) (r Room, ok bool) {
	for _, r := range sure() {
		if r.Name == name {
			return r, true
		}
	}
	for _, r := range unsure() {
		if r.Name == name {
			return r.Room, r.probe() == nil
		}
	}
	return r, false
}
