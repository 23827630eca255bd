//go:build aix || illumos || solaris

package rooms

import "github.com/socknotify/socknotify/internal/kernel/poll"

// List returns the backend of the other Unix systems.
func List() []Room {
	return []Room{{"poll", poll.New}}
}
