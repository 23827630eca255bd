//go:build aix || illumos || solaris

package system

import "github.com/socknotify/socknotify/internal/kernel/backend/poll"

// List returns the backend of the other Unix systems.
func List() []Backend {
	return []Backend{{"poll", poll.New}}
}
