//go:build !linux && !windows

package handles

// List returns nil, because the list is not available on this system.
func List() []string { return nil }
