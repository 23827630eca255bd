//go:build !windows

package facts

// There are no completion ports.
var overlapped []fact
