//go:build aix || illumos || solaris

package rooms

import "github.com/socknotify/socknotify/internal/kernel/poll"

// sure returns the room of the other Unix systems.
func sure() []Room {
	return []Room{{"poll", poll.New}}
}
