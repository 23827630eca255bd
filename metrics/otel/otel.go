// Package otel exports the counters of socknotify ports to OpenTelemetry.
//
// The instruments are the fields of [socknotify.Stats], named socknotify.…, with the attributes socknotify.port and
// socknotify.backend. They are observed when they are collected, and add no cost to the hot path. The package is a
// module of its own, so that only programs that use it depend on OpenTelemetry.
package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	api "go.opentelemetry.io/otel/metric"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/metric"
)

// A Port is a [socknotify.Port] with keys of any type.
type Port interface {
	Stats() socknotify.Stats
	Backend() string
}

// Observe registers a callback with meter that observes a port until the registration is unregistered. The name is
// the value of the attribute socknotify.port. The meter keeps a reference to the port until then.
func Observe(meter api.Meter, name string, p Port) (api.Registration, error) {
	all := metric.All()
	instruments := make([]api.Int64Observable, len(all))
	plain := make([]api.Observable, len(all))
	for i, m := range all {
		var err error
		// By convention, units of counts are in braces, and names contain dots.
		id, unit := "socknotify."+m.Name, "{"+m.Unit+"}"
		if m.Counter {
			instruments[i], err = meter.Int64ObservableCounter(id, api.WithUnit(unit), api.WithDescription(m.Help))
		} else {
			instruments[i], err = meter.Int64ObservableUpDownCounter(id, api.WithUnit(unit), api.WithDescription(m.Help))
		}
		if err != nil {
			return nil, fmt.Errorf("otel: instrument %s: %w", id, err)
		}
		plain[i] = instruments[i]
	}
	attributes := api.WithAttributeSet(attribute.NewSet(
		attribute.String("socknotify.port", name), attribute.String("socknotify.backend", p.Backend())))
	return meter.RegisterCallback(func(_ context.Context, o api.Observer) error {
		stats := p.Stats()
		for i := range all {
			o.ObserveInt64(instruments[i], all[i].Value(&stats), attributes)
		}
		return nil
	}, plain...)
}
