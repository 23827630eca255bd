//go:build !unix && !windows

package system

// List is empty: this system has no backend yet.
func List() []Backend { return nil }
