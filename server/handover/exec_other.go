//go:build !unix

package handover

// Only on Unix are descriptors inherited.
func closeOnExec(uintptr) {}
