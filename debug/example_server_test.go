package debug_test

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// A page of a server, and a readiness check. Both may be mounted before Serve.
func Example_server() {
	s := &server.Server[struct{}]{Handler: echo{}, TimeCalls: true}
	page := debug.New(debug.Server("echo", s)) // or HTTPServer, ParkServer, Lot, Port
	http.Handle("/debug/socknotify/", page)
	http.Handle("/readyz", debug.Ready(s)) // 503 as soon as Shutdown begins
	defer page.Close()

	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 503 not ready
}

// A readiness check of several servers, on a listener of its own: Kubernetes asks it from another machine.
func ExampleReady() {
	api, events := new(server.Server[int]), new(park.HTTPServer)
	check := debug.Ready(api, events)

	answer := httptest.NewRecorder()
	check.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body) // neither serves yet
	// Output: 503 not ready
}

// A page of servers of package park and of a lot of the program's own.
func ExampleHTTPServer() {
	web := &park.HTTPServer{Server: &http.Server{Handler: http.NotFoundHandler()}, TimeCalls: true}
	lines := &park.Server{Handler: func(c net.Conn) error { return nil }}
	lot, err := park.New(park.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	page := debug.New(debug.HTTPServer("web", web), debug.ParkServer("lines", lines), debug.Lot("lot", lot))
	defer page.Close()
	fmt.Println(ask(page, "http://localhost:6060/debug/socknotify/server?server=web"))
	// Output: 200
}
