// Package prometheus exports the counts of socknotify ports to Prometheus.
//
// The metrics are those of [socknotify.Stats], named socknotify_…, with the labels port and backend. They
// are read when they are scraped, which takes no lock that a waiter needs; the hot path knows nothing of
// them. The package is a module of its own, so that only who uses it needs the client library.
package prometheus

import (
	"strings"
	"sync"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/metric"
)

// A Port is a [socknotify.Port], whatever its keys are.
type Port interface {
	Stats() socknotify.Stats
	Backend() string
}

// A Collector collects from any number of ports. Its zero value has none and is ready for use; all methods
// may be called at any time. It keeps the ports that it has.
type Collector struct {
	mu    sync.RWMutex
	ports map[string]Port
}

var _ client.Collector = (*Collector)(nil)

// Add collects from a port under a name, its label. It replaces a port that has the name already. What is not
// UTF-8 in a name, which no label may have, is replaced.
func (c *Collector) Add(name string, p Port) {
	name = label(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ports == nil {
		c.ports = make(map[string]Port)
	}
	c.ports[name] = p
}

// Remove collects no more from the port of a name.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ports, label(name))
}

// label makes a name one that the client library takes; it panics at others.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Describe implements client.Collector.
func (c *Collector) Describe(ch chan<- *client.Desc) {
	for _, m := range metric.All() {
		ch <- describe(&m)
	}
}

// Collect implements client.Collector. The counts of one port are read together.
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
