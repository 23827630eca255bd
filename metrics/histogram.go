// Package metrics has the histogram of durations that the Stats of packages server and park contain: of the calls of
// handlers, where TimeCalls is set. Use it to log or compare these durations in a program of your own:
//
//	earlier := s.Stats().CallTime
//	...
//	recent := s.Stats().CallTime.Sub(earlier)
//	log.Print(recent.Count(), " calls, 99 % of them within ", recent.Quantile(0.99))
//
// For a monitoring system, use the collectors of all counters in the modules
// [github.com/socknotify/socknotify/metrics/prometheus] and [github.com/socknotify/socknotify/metrics/otel].
package metrics

import (
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets of a Histogram.
const Buckets = 21

// A Histogram counts durations by length. The counts are not read at one instant, so during measurements Sum may include a
// duration that is in no bucket yet, or the other way round.
type Histogram struct {
	Sum time.Duration
	// Buckets[i] is the number of durations that are at most Bounds()[i] and more than the bound before it. The last
	// bucket has those beyond all bounds.
	Buckets [Buckets]uint64
}

// Bounds returns the upper bounds of all buckets except the last, in ascending order.
func Bounds() [Buckets - 1]time.Duration {
	return [Buckets - 1]time.Duration{
		5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
}

// Count returns the number of durations.
func (h Histogram) Count() (n uint64) {
	for _, k := range h.Buckets {
		n += k
	}
	return n
}

// Quantile returns an estimate of the duration that a share q of all durations, from 0 to 1, does not exceed. Within a
// bucket it interpolates, as Prometheus does. Beyond the last bound it returns that bound, and without durations 0.
func (h Histogram) Quantile(q float64) time.Duration {
	bounds := Bounds()
	rank := min(max(q, 0), 1) * float64(h.Count())
	below, from := 0.0, time.Duration(0)
	for i, to := range bounds {
		n := float64(h.Buckets[i])
		if n > 0 && below+n >= rank {
			return from + time.Duration(float64(to-from)*(rank-below)/n)
		}
		below, from = below+n, to
	}
	if below == 0 && h.Buckets[Buckets-1] == 0 {
		return 0
	}
	return from
}

// Sub returns what was measured between an earlier reading of the same histogram and h.
func (h Histogram) Sub(earlier Histogram) Histogram {
	d := Histogram{Sum: h.Sum - earlier.Sum}
	for i := range d.Buckets {
		d.Buckets[i] = h.Buckets[i] - earlier.Buckets[i]
	}
	return d
}

// Add adds the durations of another histogram.
func (h *Histogram) Add(other Histogram) {
	h.Sum += other.Sum
	for i := range h.Buckets {
		h.Buckets[i] += other.Buckets[i]
	}
}

// A Recorder counts durations, of which AddTo makes a Histogram. The zero value is ready for use. Its methods may be called concurrently. A goroutine that records often has one of its own,
// so that no cache line is contended.
type Recorder struct {
	sum     atomic.Int64
	buckets [Buckets]atomic.Uint64
}

var bounds = Bounds()

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
func (r *Recorder) AddTo(h *Histogram) {
	h.Sum += time.Duration(r.sum.Load())
	for i := range r.buckets {
		h.Buckets[i] += r.buckets[i].Load()
	}
}
