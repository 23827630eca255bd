package debug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/socknotify/socknotify/debug"
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
