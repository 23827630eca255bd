//go:build !windows

package wine

// Version is empty: this is no Wine.
func Version() string { return "" }
