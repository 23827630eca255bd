// Package durations adds timeouts to times.
package durations

import (
	"math"
	"time"
)

// Add returns a + b, or the longest duration if the sum is longer than that. Neither may be
// negative. It is for the end of a timeout that a program has set, which may be as long as a
// duration can be, on a clock that counts from a start. time.Time.Add needs no such care: a Time
// has room for every duration.
func Add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
