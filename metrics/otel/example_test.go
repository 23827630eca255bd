package otel_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/otel"
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
