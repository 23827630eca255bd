// Package rooms lists the kernels that this system has, the default first.
package rooms

import "github.com/socknotify/socknotify/internal/kernel"

// A Room is one kernel: its name, and how to open a queue of it.
type Room struct {
	Name string
	Open func() (kernel.Poller, error)
}
