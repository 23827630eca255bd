package load

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Quantiles are those of the sorted numbers, at most a thousandth larger.
func TestHistogramQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h, other := newHistogram(), newHistogram()
	if h.at(500) != 0 {
		t.Errorf("the median of nothing is %d", h.at(500))
	}
	var sorted []int64
	for i := range 10_000 {
		v := r.Int64N(1 << (1 + r.IntN(40)))
		sorted = append(sorted, v)
		if i%3 == 0 {
			other.add(v)
		} else {
			h.add(v)
		}
	}
	h.merge(other)
	slices.Sort(sorted)
	for _, permille := range []int64{0, 500, 900, 990, 999, 1000} {
		want := sorted[max(int(permille)*len(sorted)/1000-1, 0)]
		if got := h.at(permille); got < want || got > want+want/1000 {
			t.Errorf("%d ‰: %d, want %d", permille, got, want)
		}
	}
	h.add(2 * longestLatency)
	if got := h.at(1000); got < longestLatency || got > longestLatency+longestLatency/1000 {
		t.Errorf("a duration beyond the end is counted as %d", got)
	}
}
