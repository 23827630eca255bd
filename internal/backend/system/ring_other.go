//go:build !linux

package system

// WithRing returns the backend itself: only Linux has io_uring.
func WithRing(r Backend) Backend { return r }
