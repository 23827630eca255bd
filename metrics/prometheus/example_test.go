package prometheus_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/park"
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
	// Output: socknotify_accepted_connections_total Connections delivered by Accept, which are notifications too.
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

// A parked net/http server and its metrics, which another server serves.
func ExampleCollector_AddHTTPServer() {
	shop := &park.HTTPServer{Server: &http.Server{Handler: http.NotFoundHandler()}, TimeCalls: true}
	var collector prometheus.Collector
	collector.AddHTTPServer("shop", shop)
	registry := client.NewRegistry()
	registry.MustRegister(&collector)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "socknotify_park_requests") {
			fmt.Print(line)
		}
	}
	// Output: socknotify_park_requests_total{server="shop"} 0
}
