// Package prometheus exports the counters of socknotify's ports, servers and lots to Prometheus.
//
// The metrics of a port are the fields of [socknotify.Stats], named socknotify_…, with the labels port and backend. Those of
// a [server.Server] are named socknotify_server_…, and those of a [park.Lot], a [park.Server] and a [park.HTTPServer]
// socknotify_park_…, with the label server. There is one series for each server and state, kind, limit or direction, and
// none for a connection or an address. A histogram of call durations is exported for servers that measure them.
//
// The counters are read when they are scraped. Reading takes no lock that a waiter needs, and exporting adds no cost to the
// hot path. The package is a module of its own, so that only programs that use it depend on the client library. Its folder
// has a dashboard for Grafana (grafana.json) and alerts (alerts.yml).
package prometheus

import (
	"strings"
	"sync"

	"github.com/socknotify/socknotify/tunnel"

	client "github.com/prometheus/client_golang/prometheus"

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

// A Collector collects metrics from any number of ports, servers and lots. The zero value has none and is ready for use.
// All methods may be called concurrently. A Collector keeps references to what was added.
//
// If something of the same kind has the same name, an Add method replaces it. Ports are one kind, and all servers and lots
// another. Invalid UTF-8 in a name is replaced, because a label must be valid UTF-8.
type Collector struct {
	mu      sync.RWMutex
	sources map[key]source
}

// A key names a source.
type key struct {
	port bool
	name string
}

// A source sends the metrics of one port, server or lot.
type source func(ch chan<- client.Metric, name string)

var _ client.Collector = (*Collector)(nil)

// Add adds a port. The name is the value of the label port.
func (c *Collector) Add(name string, p Port) {
	c.add(key{true, name}, func(ch chan<- client.Metric, name string) {
		collect(ch, metric.Port(), p.Stats(), portLabels, name, p.Backend())
	})
}

// AddServer adds a server. The name is the value of the label server.
func (c *Collector) AddServer(name string, s Server) {
	addServer(c, name, metric.Server(), s.Stats)
}

// AddLot adds a lot. The name is the value of the label server.
func (c *Collector) AddLot(name string, l Lot) {
	addServer(c, name, metric.Lot(), l.Stats)
}

// AddParkServer adds a server of package park, with its lot. The name is the value of the label server.
func (c *Collector) AddParkServer(name string, s *park.Server) {
	addServer(c, name, metric.ParkServer(), s.Stats)
}

// AddHTTPServer adds an HTTP server of package park, with its lots. The name is the value of the label server.
func (c *Collector) AddHTTPServer(name string, s *park.HTTPServer) {
	addServer(c, name, metric.HTTPServer(), s.Stats)
}

// AddTunnels adds tunnels of package park, with their lot. The name is the value of the label server.
func (c *Collector) AddTunnels(name string, t *tunnel.Tunnels) {
	addServer(c, name, metric.Tunnels(), t.Stats)
}

// addServer adds what has the label server.
func addServer[S any](c *Collector, name string, set metric.Set[S], read func() S) {
	c.add(key{false, name}, func(ch chan<- client.Metric, name string) {
		collect(ch, set, read(), serverLabels, name)
	})
}

func (c *Collector) add(k key, s source) {
	k.name = label(k.name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources == nil {
		c.sources = make(map[key]source)
	}
	c.sources[k] = s
}

// Remove removes the port, and the server or lot, with a name.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources, key{true, label(name)})
	delete(c.sources, key{false, label(name)})
}

// label replaces invalid UTF-8 in a name, at which the client library would panic.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

var portLabels, serverLabels = []string{"port", "backend"}, []string{"server"}

// Describe implements client.Collector.
func (c *Collector) Describe(ch chan<- *client.Desc) {
	describe(ch, metric.Port(), portLabels)
	describe(ch, metric.Server(), serverLabels)
	describe(ch, metric.ParkServer(), serverLabels) // which has the metrics of a lot
	describe(ch, metric.HTTPServer(), serverLabels)
	describe(ch, metric.Tunnels(), serverLabels)
}

// Collect implements client.Collector. It reads the counters of each port, server and lot once.
func (c *Collector) Collect(ch chan<- client.Metric) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for k, s := range c.sources {
		s(ch, k.name)
	}
}

func describe[S any](ch chan<- *client.Desc, set metric.Set[S], labels []string) {
	for _, m := range set.Metrics {
		ch <- descOf(&m, labels)
	}
	for _, h := range set.Histograms {
		ch <- histogramDesc(&h, labels)
	}
}

func collect[S any](ch chan<- client.Metric, set metric.Set[S], stats S, labels []string, values ...string) {
	for _, m := range set.Metrics {
		kind := client.GaugeValue
		if m.Counter {
			kind = client.CounterValue
		}
		v := float64(m.Value(&stats))
		if m.Unit == metric.Seconds {
			v /= 1e9
		}
		all := values[:len(values):len(values)]
		if m.Label != "" {
			all = append(all, m.LabelValue)
		}
		ch <- client.MustNewConstMetric(descOf(&m, labels), kind, v, all...)
	}
	for _, h := range set.Histograms {
		if value := h.Value(&stats); value.Count() > 0 {
			ch <- client.MustNewConstHistogram(histogramDesc(&h, labels), value.Count(), value.Sum.Seconds(), cumulative(value), values...)
		}
	}
}

// cumulative returns the number of durations up to each bound.
func cumulative(h metrics.Histogram) map[float64]uint64 {
	buckets, sum := make(map[float64]uint64), uint64(0)
	for i, bound := range metrics.Bounds() {
		sum += h.Buckets[i]
		buckets[bound.Seconds()] = sum
	}
	return buckets
}

func descOf[S any](m *metric.Metric[S], labels []string) *client.Desc {
	name := m.Name
	switch m.Unit {
	case metric.Bytes:
		name += "_bytes"
	case metric.Seconds:
		name += "_seconds"
	}
	if m.Counter {
		name += "_total"
	}
	if m.Label != "" {
		labels = append(labels[:len(labels):len(labels)], m.Label)
	}
	return desc(name, m.Help, labels)
}

func histogramDesc[S any](h *metric.Histogram[S], labels []string) *client.Desc {
	return desc(h.Name+"_seconds", h.Help, labels)
}

func desc(name, help string, labels []string) *client.Desc {
	return client.NewDesc("socknotify_"+strings.ReplaceAll(name, ".", "_"), help, labels, nil)
}
