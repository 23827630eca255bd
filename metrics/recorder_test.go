package metrics_test

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/metrics"
)

// A duration on a bound belongs to the bucket below it, as in Prometheus (le), and one beyond all bounds to the last.
func TestRecord(t *testing.T) {
	all := metrics.Bounds()
	var r metrics.Recorder
	var sum time.Duration
	for i, b := range all {
		r.Record(b)
		r.Record(b + 1)
		sum += 2*b + 1
		if i > 0 && b <= all[i-1] {
			t.Errorf("bound %v after %v", b, all[i-1])
		}
	}
	r.Record(-time.Second) // of a clock that was set back, which Go's monotonic clock is not
	var h metrics.Histogram
	r.AddTo(&h)
	for i, n := range h.Buckets {
		want := uint64(2)
		if i == len(h.Buckets)-1 {
			want = 1
		}
		if n != want {
			t.Errorf("bucket %d has %d; want %d", i, n, want)
		}
	}
	if h.Sum != sum || h.Count() != 2*uint64(len(all))+1 {
		t.Errorf("sum %v, count %d", h.Sum, h.Count())
	}
}

func TestQuantile(t *testing.T) {
	var r metrics.Recorder
	var h metrics.Histogram
	if q := h.Quantile(.5); q != 0 {
		t.Errorf("%v of nothing", q)
	}
	for range 90 {
		r.Record(7 * time.Microsecond)
	}
	for range 10 {
		r.Record(3 * time.Millisecond)
	}
	r.AddTo(&h)
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{.45, 7500 * time.Nanosecond}, {.9, 10 * time.Microsecond}, {1, 5 * time.Millisecond}} {
		if got := h.Quantile(c.q); got != c.want {
			t.Errorf("quantile %v is %v; want %v", c.q, got, c.want)
		}
	}
	before := h
	r.Record(time.Minute)
	var after metrics.Histogram
	r.AddTo(&after)
	if d := after.Sub(before); d.Count() != 1 || d.Sum != time.Minute || d.Quantile(.5) != 10*time.Second {
		t.Errorf("%+v", d)
	}
}

func BenchmarkRecord(b *testing.B) {
	var r metrics.Recorder
	b.ReportAllocs()
	for b.Loop() {
		r.Record(3 * time.Microsecond)
	}
}
