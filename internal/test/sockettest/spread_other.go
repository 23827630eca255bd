//go:build unix && !linux

package sockettest

// BindTo prepares a socket for being bound to a Source, which needs nothing here.
func BindTo(uintptr) error { return nil }
