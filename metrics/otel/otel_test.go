package otel_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/otel"
)

func collect(t *testing.T, r sdk.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	out := map[string]metricdata.Metrics{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			out[m.Name] = m
		}
	}
	return out
}

func TestObserve(t *testing.T) {
	p, err := socknotify.New[string]()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	q, err := socknotify.New[int]()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer provider.Shutdown(context.Background())
	meter := provider.Meter("test")
	first, err := otel.Observe(meter, "first", p)
	if err != nil {
		t.Fatal(err)
	}
	second, err := otel.Observe(meter, "second", q)
	if err != nil {
		t.Fatal(err)
	}
	p.Post("k", 1)
	p.Post("k", 2)
	got := collect(t, reader)
	if len(got) != reflect.TypeFor[socknotify.Stats]().NumField() {
		t.Errorf("%d instruments", len(got))
	}
	for name, m := range got {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !strings.HasPrefix(name, "socknotify.") || m.Unit == "" || m.Description == "" || !ok || len(sum.DataPoints) != 2 {
			t.Errorf("%+v", m)
		}
	}
	posts := got["socknotify.posts"].Data.(metricdata.Sum[int64])
	if !posts.IsMonotonic || got["socknotify.queued_entries"].Data.(metricdata.Sum[int64]).IsMonotonic {
		t.Error("posts must be monotonic, and queued must not")
	}
	for _, point := range posts.DataPoints {
		name, _ := point.Attributes.Value(attribute.Key("socknotify.port"))
		backend, _ := point.Attributes.Value(attribute.Key("socknotify.backend"))
		if want := map[string]int64{"first": 2, "second": 0}[name.AsString()]; point.Value != want || backend.AsString() != p.Backend() {
			t.Errorf("%+v; want %d", point, want)
		}
	}
	if err := first.Unregister(); err != nil {
		t.Error(err)
	}
	if got := collect(t, reader)["socknotify.posts"].Data.(metricdata.Sum[int64]); len(got.DataPoints) != 1 {
		t.Errorf("%+v after the first was unregistered", got)
	}
	second.Unregister()
}
