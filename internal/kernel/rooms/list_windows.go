package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/afd"
	"github.com/socknotify/socknotify/internal/kernel/psn"
)

// List returns the backends of Windows: its own function first, where the system has it.
func List() []Room {
	list := []Room{{"psn", psn.New}, {"afd", afd.New}}
	if psn.Supported() != nil {
		return list[1:]
	}
	return list
}

func absent(name string) error {
	if name == "psn" {
		return psn.Supported()
	}
	return nil
}
