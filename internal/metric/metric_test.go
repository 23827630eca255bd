package metric

import (
	"reflect"
	"slices"
	"testing"

	"github.com/socknotify/socknotify/metrics"
)

// Every number of the counts moves at least one metric, and every metric is moved by one.
func TestEveryCount(t *testing.T) {
	t.Run("port", func(t *testing.T) { every(t, Port()) })
	t.Run("server", func(t *testing.T) { every(t, Server()) })
	t.Run("lot", func(t *testing.T) { every(t, Lot()) })
	t.Run("park.Server", func(t *testing.T) { every(t, ParkServer()) })
	t.Run("park.HTTPServer", func(t *testing.T) { every(t, HTTPServer()) })
}

func every[S any](t *testing.T, set Set[S]) {
	moved := make([]bool, len(set.Metrics))
	for _, f := range reflect.VisibleFields(reflect.TypeFor[S]()) {
		if f.Anonymous {
			continue
		}
		var zero S
		some := false
		// Some metrics are differences, so a field may need others that are at least as large.
		for _, base := range []int64{0, 1 << 20} {
			s := zero
			fill(reflect.ValueOf(&s).Elem(), base)
			before := values(set, &s)
			field := reflect.ValueOf(&s).Elem().FieldByIndex(f.Index)
			if h, ok := field.Addr().Interface().(*metrics.Histogram); ok {
				h.Sum = 42
				for _, hist := range set.Histograms {
					some = some || hist.Value(&s).Sum == 42
				}
				continue
			}
			add(field, 42)
			for i, v := range values(set, &s) {
				if v != before[i] {
					some, moved[i] = true, true
				}
			}
		}
		if !some {
			t.Errorf("%s moves no metric", f.Name)
		}
	}
	for i, m := range set.Metrics {
		if !moved[i] {
			t.Errorf("%s %s is moved by no count", m.Name, m.LabelValue)
		}
		if slices.ContainsFunc(set.Metrics[:i], func(o Metric[S]) bool { return o.Name == m.Name && o.LabelValue == m.LabelValue }) {
			t.Errorf("two metrics %s %s", m.Name, m.LabelValue)
		}
	}
}

func fill(s reflect.Value, n int64) {
	for _, f := range reflect.VisibleFields(s.Type()) {
		if field := s.FieldByIndex(f.Index); field.CanInt() || field.CanUint() {
			add(field, n)
		}
	}
}

func add(field reflect.Value, n int64) {
	if field.CanInt() {
		field.SetInt(field.Int() + n)
	} else {
		field.SetUint(field.Uint() + uint64(n))
	}
}

func values[S any](set Set[S], s *S) (v []int64) {
	for _, m := range set.Metrics {
		v = append(v, m.Value(s))
	}
	return v
}
