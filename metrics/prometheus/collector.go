// Package prometheus exports the counters of socknotify ports to Prometheus.
//
// The metrics are the fields of [socknotify.Stats], named socknotify_…, with the labels port and backend. They are
// read when they are scraped. Reading takes no lock that a waiter needs, and exporting adds no cost to the hot
// path. The package is a module of its own, so that only programs that use it depend on the client library.
package prometheus

import (
	"strings"
	"sync"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/metric"
)

// A Port is a [socknotify.Port] with keys of any type.
type Port interface {
	Stats() socknotify.Stats
	Backend() string
}

// A Collector collects metrics from any number of ports. The zero value has no ports and is ready for use. All
// methods may be called concurrently. A Collector keeps references to its ports.
type Collector struct {
	mu    sync.RWMutex
	ports map[string]Port
}

var _ client.Collector = (*Collector)(nil)

// Add adds a port. The name is the value of the label port. If there is a port with that name, Add replaces it.
// Invalid UTF-8 in a name is replaced, because a label must be valid UTF-8.
func (c *Collector) Add(name string, p Port) {
	name = label(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ports == nil {
		c.ports = make(map[string]Port)
	}
	c.ports[name] = p
}

// Remove removes the port with a name.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ports, label(name))
}

// label replaces invalid UTF-8 in a name, at which the client library would panic.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Describe implements client.Collector.
func (c *Collector) Describe(ch chan<- *client.Desc) {
	for _, m := range metric.All() {
		ch <- describe(&m)
	}
}

// Collect implements client.Collector. It reads the counters of a port once.
func (c *Collector) Collect(ch chan<- client.Metric) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, p := range c.ports {
		stats := p.Stats()
		for _, m := range metric.All() {
			kind := client.GaugeValue
			if m.Counter {
				kind = client.CounterValue
			}
			ch <- client.MustNewConstMetric(describe(&m), kind, float64(m.Value(&stats)), name, p.Backend())
		}
	}
}

func describe(m *metric.Metric) *client.Desc {
	name := "socknotify_" + m.Name
	if m.Counter {
		name += "_total"
	}
	return client.NewDesc(name, m.Help, []string{"port", "backend"}, nil)
}
