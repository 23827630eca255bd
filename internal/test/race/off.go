//go:build !race

// Package race says whether a test runs with the race detector, whose memory and allocations would be
// measured with those of the program.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
