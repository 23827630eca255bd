package transport

import (
	"testing"
	"time"
)

// The parts of a long duration are in order, for many clients too.
func TestPartOfLongDuration(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, 3 * time.Hour, 1<<63 - 1} {
		const n = 1_000_000
		last := time.Duration(0)
		for _, i := range []int{0, 1, n / 2, n - 1} {
			at := part(d, i, n)
			want := float64(d) / n * float64(i)
			if at < last || float64(at) > want+1 || float64(at) < want-n {
				t.Errorf("%d %d-ths of %v: %v", i, n, d, at)
			}
			last = at
		}
	}
}
