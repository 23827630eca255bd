package rooms

import "github.com/socknotify/socknotify/internal/kernel/afd"

// sure returns the rooms of Windows.
func sure() []Room {
	return []Room{{"afd", afd.New}}
}
