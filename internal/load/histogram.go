package load

import (
	"math/bits"
	"time"
)

// A histogram counts durations. Each power of two is divided into steps equal buckets, so a quantile is at most a
// thousandth too large.
type histogram struct {
	counts  []int64
	total   int64
	longest int64
}

const (
	stepBits = 10
	steps    = 1 << stepBits
)

// longestLatency is the upper end of the histograms, in nanoseconds. Longer durations are counted as this one.
const longestLatency = int64(time.Hour)

func newHistogram() *histogram {
	return &histogram{counts: make([]int64, bucket(longestLatency)+1)}
}

// bucket returns the index of the bucket that counts v. Below 2*steps each number has a bucket of its own.
func bucket(v int64) int {
	shift := max(bits.Len64(uint64(v))-stepBits-1, 0)
	return shift<<stepBits + int(v>>shift)
}

// largest returns the largest number that bucket i counts.
func largest(i int) int64 {
	shift := max(i>>stepBits-1, 0)
	return int64(i-shift<<stepBits+1)<<shift - 1
}

func (h *histogram) add(v int64) {
	h.counts[bucket(min(max(v, 0), longestLatency))]++
	h.total++
	h.longest = max(h.longest, v)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.longest = max(h.longest, other.longest)
}

// at returns a number that permille of those counted do not exceed. It is 0 if nothing was counted.
func (h *histogram) at(permille int64) int64 {
	rank := max((h.total*permille+999)/1000, 1)
	for i, n := range h.counts {
		if rank -= n; rank <= 0 {
			return min(largest(i), h.longest)
		}
	}
	return 0
}
