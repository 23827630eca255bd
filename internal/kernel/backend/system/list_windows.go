package system

import (
	"github.com/socknotify/socknotify/internal/kernel/backend/afd"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
)

// List returns the backends of Windows, the default first. Backend psn is in it only if the system has
// ProcessSocketNotifications.
func List() []Backend {
	list := []Backend{{"psn", psn.New}, {"afd", afd.New}}
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
