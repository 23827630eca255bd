package gateway

import (
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// A Collector exports the counters of a Gateway to Prometheus, as socknotify_push_…. It implements client.Collector of
// github.com/prometheus/client_golang.
type Collector struct{ gateway *Gateway }

// NewCollector returns the collector of a gateway.
func NewCollector(g *Gateway) Collector { return Collector{g} }

// A series is one metric of a Gateway.
type series struct {
	name    string
	desc    *client.Desc
	counter bool
	value   func(*Stats) float64
}

func newSeries[N int | int64 | uint64](name, help string, value func(*Stats) N) series {
	name = "socknotify_push_" + name
	desc := client.NewDesc(name, help, nil, nil)
	return series{name, desc, strings.HasSuffix(name, "_total"), func(s *Stats) float64 { return float64(value(s)) }}
}

// A streamSeries is one metric of a stream. It has the label stream.
type streamSeries struct {
	name  string
	desc  *client.Desc
	value func(*Stream) float64
}

func newStreamSeries(name, help string, value func(*Stream) float64) streamSeries {
	name = "socknotify_push_" + name
	return streamSeries{name, client.NewDesc(name, help, []string{"stream"}, nil), value}
}

var allStreamSeries = []streamSeries{
	newStreamSeries("oldest_event_seconds", "The age of the oldest event of the stream, at the last audit; 0 if there is none.",
		func(s *Stream) float64 {
			if s.Oldest.IsZero() {
				return 0
			}
			return time.Since(s.Oldest).Seconds()
		}),
	newStreamSeries("replica_lag", "Operations that the replica of the stream that is furthest behind its leader has to do.",
		func(s *Stream) (most float64) {
			for _, m := range s.Members {
				most = max(most, float64(m.Lag))
			}
			return most
		}),
	newStreamSeries("replicas_offline", "Replicas of the stream that its leader does not reach.",
		func(s *Stream) (n float64) {
			for _, m := range s.Members {
				if m.Offline {
					n++
				}
			}
			return n
		}),
}

var ready = client.NewDesc("socknotify_push_ready", "1 if the node can serve clients and store events, otherwise 0.", nil, nil)

var allSeries = []series{
	newSeries("clients", "Clients that are connected.", func(s *Stats) int { return s.Conns }),
	newSeries("topics", "Topics and filters that this node subscribes to.", func(s *Stats) int { return s.Topics }),
	newSeries("queued_bytes", "Bytes that wait for slow clients.", func(s *Stats) int64 { return s.QueuedBytes }),
	newSeries("published_total", "Events published through this node.", func(s *Stats) uint64 { return s.Published }),
	newSeries("events_total", "Events that this node got for its topics.", func(s *Stats) uint64 { return s.Events }),
	newSeries("delivered_total", "Events given to clients.", func(s *Stats) uint64 { return s.Delivered }),
	newSeries("dropped_total", "Events dropped for slow clients.", func(s *Stats) uint64 { return s.Dropped }),
	newSeries("slow_clients_total", "Clients closed because they read too slowly.", func(s *Stats) uint64 { return s.TimedOut.Slow }),
	newSeries("silent_clients_total", "WebSockets closed because they answered no ping.",
		func(s *Stats) uint64 { return s.TimedOut.Idle }),
	newSeries("resumed_total", "Topics resumed with an id.", func(s *Stats) uint64 { return s.Resumed }),
	newSeries("gaps_total", "Gaps that an event's predecessor has shown, and that were filled.",
		func(s *Stats) uint64 { return s.Gaps }),
	newSeries("repairs_total", "Topics that an audit has found behind the stream.",
		func(s *Stats) uint64 { return s.Repairs }),
	newSeries("audits_total", "Comparisons of this node's topics with the stream.",
		func(s *Stats) uint64 { return s.Audits }),
	newSeries("audit_failures_total", "Comparisons that failed.", func(s *Stats) uint64 { return s.AuditFailures }),
	newSeries("denied_total", "Requests without a valid token, or for topics that it does not allow.",
		func(s *Stats) uint64 { return s.Denied }),
	newSeries("refused_total", "Requests that were too many, or could not be served then.",
		func(s *Stats) uint64 { return s.Refused }),
	newSeries("rejected_total", "Requests that were malformed or too large.",
		func(s *Stats) uint64 { return s.Rejected }),
	newSeries("webhooks_total", "Requests to webhooks.", func(s *Stats) uint64 { return s.Hooks }),
	newSeries("webhook_failures_total", "Requests to webhooks without a valid answer.",
		func(s *Stats) uint64 { return s.HookFailures }),
	newSeries("panics_total", "Panics of the connections' methods.", func(s *Stats) uint64 { return s.Panics }),
	newSeries("strange_total", "Messages of NATS that are not the stream's.", func(s *Stats) uint64 { return s.Strange }),
	newSeries("stream_first_sequence", "The first sequence of the stream, at the last audit; the sum of several shards.",
		func(s *Stats) uint64 { return s.First }),
	newSeries("stream_last_sequence", "The last sequence of the stream, at the last audit; the sum of several shards.",
		func(s *Stats) uint64 { return s.Last }),
}

// Describe implements client.Collector.
func (c Collector) Describe(ch chan<- *client.Desc) {
	ch <- ready
	for _, s := range allSeries {
		ch <- s.desc
	}
	for _, s := range allStreamSeries {
		ch <- s.desc
	}
}

// Collect implements client.Collector.
func (c Collector) Collect(ch chan<- client.Metric) {
	is := 0.0
	if c.gateway.Ready() {
		is = 1
	}
	ch <- client.MustNewConstMetric(ready, client.GaugeValue, is)
	for _, one := range c.gateway.Streams() {
		for _, s := range allStreamSeries {
			ch <- client.MustNewConstMetric(s.desc, client.GaugeValue, s.value(&one), one.Name)
		}
	}
	stats := c.gateway.Stats()
	for _, s := range allSeries {
		kind := client.GaugeValue
		if s.counter {
			kind = client.CounterValue
		}
		ch <- client.MustNewConstMetric(s.desc, kind, s.value(&stats))
	}
}
