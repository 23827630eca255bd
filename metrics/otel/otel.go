// Package otel exports the counters of socknotify's ports, servers and lots to OpenTelemetry.
//
// The instruments of a port are the fields of [socknotify.Stats], named socknotify.…, with the attributes socknotify.port
// and socknotify.backend. Those of a [server.Server] are named socknotify.server.…, and those of a [park.Lot], a
// [park.Server] and a [park.HTTPServer] socknotify.park.…, with the attribute socknotify.server. Further attributes are
// network.io.direction, and socknotify.state, socknotify.kind, socknotify.limit and socknotify.cause. There are no
// attributes of a connection or an address.
//
// The instruments are observed when they are collected, and add no cost to the hot path. OpenTelemetry has no instrument for
// a histogram that exists already, so [Histograms] is a producer for a reader of its SDK. The package is a module of its
// own, so that only programs that use it depend on OpenTelemetry.
package otel

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"go.opentelemetry.io/otel/attribute"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/metrics/internal/metric"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// A Port is a [socknotify.Port] with keys of any type.
type Port interface {
	Stats() socknotify.Stats
	Backend() string
}

// A Server is a [server.Server] with states of any type.
type Server interface{ Stats() server.Stats }

// A Lot is a [park.Lot] or a [park.FirstByteListener].
type Lot interface{ Stats() park.Stats }

const serverKey = attribute.Key("socknotify.server")

// Observe registers a callback with meter that observes a port until the registration is unregistered. The name is
// the value of the attribute socknotify.port. The meter keeps a reference to the port until then.
func Observe(meter api.Meter, name string, p Port) (api.Registration, error) {
	return observe(meter, metric.Port(), p.Stats,
		attribute.String("socknotify.port", name), attribute.String("socknotify.backend", p.Backend()))
}

// ObserveServer is [Observe] for a server. The name is the value of the attribute socknotify.server.
func ObserveServer(meter api.Meter, name string, s Server) (api.Registration, error) {
	return observe(meter, metric.Server(), s.Stats, serverKey.String(name))
}

// ObserveLot is [Observe] for a lot. The name is the value of the attribute socknotify.server.
func ObserveLot(meter api.Meter, name string, l Lot) (api.Registration, error) {
	return observe(meter, metric.Lot(), l.Stats, serverKey.String(name))
}

// ObserveParkServer is [Observe] for a server of package park, with its lot. The name is the value of the attribute
// socknotify.server.
func ObserveParkServer(meter api.Meter, name string, s *park.Server) (api.Registration, error) {
	return observe(meter, metric.ParkServer(), s.Stats, serverKey.String(name))
}

// ObserveHTTPServer is [Observe] for an HTTP server of package park, with its lots. The name is the value of the attribute
// socknotify.server.
func ObserveHTTPServer(meter api.Meter, name string, s *park.HTTPServer) (api.Registration, error) {
	return observe(meter, metric.HTTPServer(), s.Stats, serverKey.String(name))
}

// ObserveTunnels is [Observe] for tunnels of package park, with their lot. The name is the value of the
// attribute socknotify.server.
func ObserveTunnels(meter api.Meter, name string, t *tunnel.Tunnels) (api.Registration, error) {
	return observe(meter, metric.Tunnels(), t.Stats, serverKey.String(name))
}

// observe registers a callback that observes the metrics of a set.
func observe[S any](meter api.Meter, set metric.Set[S], read func() S, attributes ...attribute.KeyValue) (api.Registration, error) {
	type observation struct {
		metric.Metric[S]
		whole      api.Int64Observable
		seconds    api.Float64Observable
		attributes api.MeasurementOption
	}
	list := make([]observation, len(set.Metrics))
	var all []api.Observable
	instruments := map[string]observation{} // by name: metrics that differ by a label share one
	for i, m := range set.Metrics {
		o, known := instruments[m.Name]
		o.Metric = m
		id := "socknotify." + m.Name
		if !known {
			var err error
			switch {
			case m.Unit == metric.Seconds:
				o.seconds, err = meter.Float64ObservableGauge(id, api.WithUnit("s"), api.WithDescription(m.Help))
				all = append(all, o.seconds)
			case m.Counter:
				o.whole, err = meter.Int64ObservableCounter(id, api.WithUnit(unit(m.Unit)), api.WithDescription(m.Help))
				all = append(all, o.whole)
			default:
				o.whole, err = meter.Int64ObservableUpDownCounter(id, api.WithUnit(unit(m.Unit)), api.WithDescription(m.Help))
				all = append(all, o.whole)
			}
			if err != nil {
				return nil, fmt.Errorf("otel: instrument %s: %w", id, err)
			}
			instruments[m.Name] = o
		}
		with := attributes[:len(attributes):len(attributes)]
		if m.Label != "" {
			with = append(with, attribute.String(attributeName(m.Label), m.LabelValue))
		}
		o.attributes = api.WithAttributeSet(attribute.NewSet(with...))
		list[i] = o
	}
	return meter.RegisterCallback(func(_ context.Context, to api.Observer) error {
		stats := read()
		for i := range list {
			o := &list[i]
			if v := o.Value(&stats); o.seconds != nil {
				to.ObserveFloat64(o.seconds, time.Duration(v).Seconds(), o.attributes)
			} else {
				to.ObserveInt64(o.whole, v, o.attributes)
			}
		}
		return nil
	}, all...)
}

// unit returns a unit as UCUM writes it: by convention, the names of things counted are in braces.
func unit(name string) string {
	if name == metric.Bytes {
		return name
	}
	return "{" + name + "}"
}

// attributeName returns the name of an attribute: that of OpenTelemetry's conventions, where there is one.
func attributeName(label string) string {
	if label == "direction" {
		return "network.io.direction"
	}
	return "socknotify." + label
}

// Histograms produces the histograms of servers and lots that measure their calls. Give it to a reader of OpenTelemetry's
// SDK with sdk/metric.WithProducer. The zero value has none and is ready for use. All methods may be called concurrently.
type Histograms struct {
	mu    sync.Mutex
	began time.Time
	read  map[string]func(now time.Time) []metricdata.Metrics
}

// AddServer adds a server. The name is the value of the attribute socknotify.server. If something has the same name, each
// Add method replaces it.
func (h *Histograms) AddServer(name string, s Server) { add(h, name, metric.Server(), s.Stats) }

// AddLot adds a lot, as AddServer does.
func (h *Histograms) AddLot(name string, l Lot) { add(h, name, metric.Lot(), l.Stats) }

// AddParkServer adds a server of package park, as AddServer does.
func (h *Histograms) AddParkServer(name string, s *park.Server) {
	add(h, name, metric.ParkServer(), s.Stats)
}

// AddHTTPServer adds an HTTP server of package park, as AddServer does.
func (h *Histograms) AddHTTPServer(name string, s *park.HTTPServer) {
	add(h, name, metric.HTTPServer(), s.Stats)
}

// Remove removes what has a name.
func (h *Histograms) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.read, name)
}

func add[S any](h *Histograms, name string, set metric.Set[S], read func() S) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read == nil {
		h.read, h.began = make(map[string]func(time.Time) []metricdata.Metrics), time.Now()
	}
	began := h.began
	attributes := attribute.NewSet(serverKey.String(strings.ToValidUTF8(name, "\uFFFD")))
	h.read[name] = func(now time.Time) (out []metricdata.Metrics) {
		stats := read()
		for _, hist := range set.Histograms {
			value := hist.Value(&stats)
			if value.Count() == 0 {
				continue
			}
			out = append(out, metricdata.Metrics{
				Name: "socknotify." + hist.Name, Description: hist.Help, Unit: "s",
				Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: []metricdata.HistogramDataPoint[float64]{{
					Attributes: attributes, StartTime: began, Time: now, Count: value.Count(), Sum: value.Sum.Seconds(),
					Bounds: bounds(), BucketCounts: append([]uint64(nil), value.Buckets[:]...),
				}}},
			})
		}
		return out
	}
}

// Produce implements sdk/metric.Producer.
func (h *Histograms) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: "github.com/socknotify/socknotify/metrics/otel"}}
	at := map[string]int{} // the points of one name belong together
	for _, read := range h.read {
		for _, m := range read(now) {
			i, known := at[m.Name]
			if !known {
				at[m.Name] = len(scope.Metrics)
				scope.Metrics = append(scope.Metrics, m)
				continue
			}
			all := scope.Metrics[i].Data.(metricdata.Histogram[float64])
			all.DataPoints = append(all.DataPoints, m.Data.(metricdata.Histogram[float64]).DataPoints...)
			scope.Metrics[i].Data = all
		}
	}
	if len(scope.Metrics) == 0 {
		return nil, nil
	}
	return []metricdata.ScopeMetrics{scope}, nil
}

func bounds() (out []float64) {
	for _, b := range metrics.Bounds() {
		out = append(out, b.Seconds())
	}
	return out
}
