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
	ofStreams := []string{"QueuedBytes", "Dropped", "BytesForth", "BytesBack", "Copied"}
	ofServer := append(ofStreams, "Conns", "Accepted", "Refused", "RefusedPerAddr", "Handshakes", "TimedOut.Idle",
		"TimedOut.Slow", "TimedOut.Message", "TimedOut.Handshake")
	ofHTTP := []string{"UnparkedHTTP2", "Suspended", "Blocked", "SuspendedBytes", "LongestWait", "WaitTime", "Resumed",
		"WaitTimeouts", "ClientsGone", "WaitsClosed", "RefusedSuspends"}
	t.Run("lot", func(t *testing.T) {
		every(t, Lot(), slices.Concat(ofServer, ofHTTP, []string{"Calls", "CryptoTLS", "Rejected"})...)
	})
	t.Run("park.Server", func(t *testing.T) {
		every(t, ParkServer(), append(ofStreams, ofHTTP...)...)
	})
	t.Run("tunnel.Tunnels", func(t *testing.T) {
		every(t, Tunnels(), append(ofHTTP, "RefusedPerAddr", "Dropped", "Calls", "CallTime",
			"Handshakes", "CryptoTLS", "TimedOut.Message")...)
	})
	t.Run("park.HTTPServer", func(t *testing.T) {
		every(t, HTTPServer(), slices.DeleteFunc(ofServer, func(n string) bool { return n == "Conns" || n == "Accepted" })...)
	})
}

// every checks a set. not are the counts that its kind of server does not have.
func every[S any](t *testing.T, set Set[S], not ...string) {
	moved := make([]bool, len(set.Metrics))
	for _, f := range numbers(reflect.TypeFor[S](), nil) {
		if slices.Contains(not, f.Name) {
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

// numbers returns the fields of a struct type, and those of its structs but metrics.Histogram. Names of the latter follow a
// dot.
func numbers(s reflect.Type, index []int) (all []reflect.StructField) {
	for i := range s.NumField() {
		f := s.Field(i)
		f.Index = append(slices.Clone(index), i)
		if f.Type.Kind() != reflect.Struct || f.Type == reflect.TypeFor[metrics.Histogram]() {
			all = append(all, f)
			continue
		}
		for _, part := range numbers(f.Type, f.Index) {
			part.Name = f.Name + "." + part.Name
			all = append(all, part)
		}
	}
	return all
}

func fill(s reflect.Value, n int64) {
	for _, f := range numbers(s.Type(), nil) {
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
