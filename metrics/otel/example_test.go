package otel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/otel"
	"github.com/socknotify/socknotify/park"
)

func ExampleObserve() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())) // or a reader for any exporter
	defer provider.Shutdown(context.Background())

	registration, err := otel.Observe(provider.Meter("example"), "echo", port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(registration.Unregister())
	// Output: <nil>
}

// A server with its counters and the histogram of its calls. It may be observed before it serves.
func ExampleObserveHTTPServer() {
	s := &park.HTTPServer{Server: &http.Server{Handler: http.NotFoundHandler()}, TimeCalls: true}
	var histograms otel.Histograms
	histograms.AddHTTPServer("shop", s)
	reader := sdk.NewManualReader(sdk.WithProducer(&histograms)) // or a reader for any exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer provider.Shutdown(context.Background())
	registration, err := otel.ObserveHTTPServer(provider.Meter("example"), "shop", s)
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Unregister()

	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		log.Fatal(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if m.Name == "socknotify.park.requests" {
			fmt.Println(m.Name, m.Unit, m.Description)
		}
	}
	// Output: socknotify.park.requests {request} Requests that a handler was called for.
}
