package caddy

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/socknotify/socknotify/park"
)

// registerMetrics adds the counters of all tunnels to Caddy's metrics.
func registerMetrics(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range metrics {
		var registered prometheus.AlreadyRegisteredError
		if err := registry.Register(c); err != nil && !errors.As(err, &registered) {
			return err
		}
	}
	return nil
}

var metrics = []prometheus.Collector{
	prometheus.NewGaugeFunc(named("open", "Upgraded connections that are open, and that Caddy does not copy."),
		stat(func(st park.Stats) int { return st.Conns })),
	prometheus.NewCounterFunc(prometheus.CounterOpts(named("joined_total", "Upgraded connections that Caddy does not copy.")),
		stat(func(st park.Stats) uint64 { return st.Accepted })),
	prometheus.NewCounterFunc(prometheus.CounterOpts(named("copied_total", "Upgraded connections that were left to Caddy's copying.")),
		stat(func(st park.Stats) uint64 { return st.Copied })),
}

func named(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: "caddy", Subsystem: "park_upgrades", Name: name, Help: help}
}

func stat[N int | uint64](of func(park.Stats) N) func() float64 {
	return func() float64 { return float64(of(tunnels.Stats())) }
}
