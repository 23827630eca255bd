package otel_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/metrics/otel"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// The counts and the histogram of a server of package park are those that it has itself.
func TestObserveServers(t *testing.T) {
	s := &park.Server{TimeCalls: true, Handler: func(c net.Conn) error {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			return err
		}
		_, err := c.Write(b[:])
		return err
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	defer func() {
		s.Close()
		<-done
		s.Shutdown(context.Background())
	}()
	var h otel.Histograms
	h.AddParkServer("shop", s)
	reader := sdk.NewManualReader(sdk.WithProducer(&h))
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer provider.Shutdown(context.Background())
	if _, known := collect(t, reader)["socknotify.park.call.duration"]; known {
		t.Error("a histogram before the first call")
	}
	meter := provider.Meter("test")
	observed, err := otel.ObserveParkServer(meter, "shop", s)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "three calls are counted", func() bool { return s.Stats().CallTime.Count() >= 3 })
	got := collect(t, reader)
	calls := got["socknotify.park.calls"]
	if sum, ok := calls.Data.(metricdata.Sum[int64]); !ok || !sum.IsMonotonic || sum.DataPoints[0].Value != 3 || calls.Unit != "{call}" {
		t.Errorf("%+v", calls)
	}
	states := map[string]int64{}
	for _, p := range got["socknotify.park.connections"].Data.(metricdata.Sum[int64]).DataPoints {
		state, _ := p.Attributes.Value("socknotify.state")
		name, _ := p.Attributes.Value("socknotify.server")
		if states[state.AsString()] = p.Value; name.AsString() != "shop" {
			t.Errorf("%+v", p)
		}
	}
	if len(states) != 3 {
		t.Errorf("states %v", states)
	}
	d := got["socknotify.park.call.duration"]
	points := d.Data.(metricdata.Histogram[float64])
	p, want := points.DataPoints[0], attribute.NewSet(attribute.String("socknotify.server", "shop"))
	if d.Unit != "s" || points.Temporality != metricdata.CumulativeTemporality || p.Count != 3 || p.Sum <= 0 || len(p.BucketCounts) != len(p.Bounds)+1 ||
		!p.Attributes.Equals(&want) {
		t.Errorf("%+v", d)
	}
	if err := observed.Unregister(); err != nil {
		t.Error(err)
	}
	h.Remove("shop")
	if got := collect(t, reader); len(got) != 0 {
		t.Errorf("%v after the end", got)
	}
}

// Each kind has instruments whose names, units and attributes follow the conventions.
func TestConventions(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer provider.Shutdown(context.Background())
	meter := provider.Meter("test")
	lot, err := park.New(park.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer lot.Close()
	for name, observe := range map[string]func() error{
		"server": func() error { _, err := otel.ObserveServer(meter, "server", new(server.Server[int])); return err },
		"lot":    func() error { _, err := otel.ObserveLot(meter, "lot", lot); return err },
		"http":   func() error { _, err := otel.ObserveHTTPServer(meter, "http", new(park.HTTPServer)); return err },
	} {
		if err := observe(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := collect(t, reader)
	for name, m := range got {
		if !strings.HasPrefix(name, "socknotify.") || name != strings.ToLower(name) || m.Description == "" || strings.HasSuffix(name, "_total") {
			t.Errorf("%+v", m)
		}
		if m.Unit != "By" && m.Unit != "s" && (m.Unit[0] != '{' || m.Unit[len(m.Unit)-1] != '}') {
			t.Errorf("%s has unit %q", name, m.Unit)
		}
	}
	io := got["socknotify.server.io"].Data.(metricdata.Sum[int64])
	if v, ok := io.DataPoints[0].Attributes.Value("network.io.direction"); !ok || v.AsString() != "receive" && v.AsString() != "transmit" {
		t.Errorf("%+v", io)
	}
	for _, name := range []string{"socknotify.park.open_connections", "socknotify.park.accepted_connections"} {
		if points := got[name].Data.(metricdata.Sum[int64]).DataPoints; len(points) != 1 {
			t.Errorf("%s: %+v", name, points)
		}
	}
	if got["socknotify.server.longest_call"].Unit != "s" || got["socknotify.server.queued"].Unit != "By" {
		t.Errorf("%+v, %+v", got["socknotify.server.longest_call"], got["socknotify.server.queued"])
	}
}
