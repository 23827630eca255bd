// Package durations has what servers do with durations: they measure how long calls take, and add
// timeouts to times.
package durations

import (
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/metrics"
)

// A Recorder counts durations. Its methods may be called concurrently. A goroutine that records often has one of its own,
// so that no cache line is contended.
type Recorder struct {
	sum     atomic.Int64
	buckets [metrics.Buckets]atomic.Uint64
}

var bounds = metrics.Bounds()

// Record counts a duration.
func (r *Recorder) Record(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	r.buckets[i].Add(1)
	r.sum.Add(int64(d))
}

// AddTo adds what was recorded to h.
func (r *Recorder) AddTo(h *metrics.Histogram) {
	h.Sum += time.Duration(r.sum.Load())
	for i := range r.buckets {
		h.Buckets[i] += r.buckets[i].Load()
	}
}
