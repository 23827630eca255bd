package rooms

import "github.com/socknotify/socknotify/internal/kernel/afd"

// List returns the rooms of Windows.
func List() []Room {
	return []Room{{"afd", afd.New}}
}
