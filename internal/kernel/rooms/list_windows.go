package rooms

import (
	"errors"

	"github.com/socknotify/socknotify/internal/kernel/afd"
	"github.com/socknotify/socknotify/internal/kernel/psn"
)

// sure returns the rooms of Windows: its own function first, where it has it.
func sure() []Room {
	list := []Room{{"psn", psn.New}, {"afd", afd.New}}
	if psn.Supported() != nil {
		return list[1:]
	}
	return list
}

// Absent tells why a room is not in List. The error is errors.ErrUnsupported.
func Absent(name string) error {
	if err := psn.Supported(); name == "psn" && err != nil {
		return err
	}
	return errors.ErrUnsupported
}
