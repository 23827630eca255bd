package prometheus_test

import (
	"fmt"
	"log"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/server"
)

func Example() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	var ports prometheus.Collector
	ports.Add("echo", port)

	registry := client.NewRegistry() // or the default one
	registry.MustRegister(&ports)
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(families[0].GetName(), families[0].GetHelp())
	// Output: socknotify_accepted_total Connections delivered by Accept, which are notifications too.
}

// A port is added and removed.
func ExampleCollector_Remove() {
	var ports prometheus.Collector
	registry := client.NewRegistry()
	registry.MustRegister(&ports)

	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	ports.Add("echo", port)
	families, err := registry.Gather()
	fmt.Println(len(families) > 0, err)

	port.Close()
	ports.Remove("echo")
	families, err = registry.Gather()
	fmt.Println(len(families) > 0, err)
	// Output:
	// true <nil>
	// false <nil>
}

// A server is added before it serves. With TimeCalls there is a histogram of how long its handler takes.
func ExampleCollector_AddServer() {
	s := &server.Server[struct{}]{Handler: echo{}, TimeCalls: true}
	var collector prometheus.Collector
	collector.AddServer("shop", s)
	registry := client.NewRegistry()
	registry.MustRegister(&collector)
	families, err := registry.Gather()
	fmt.Println(families[0].GetName(), err)
	// Output: socknotify_server_accepted_connections_total <nil>
}
