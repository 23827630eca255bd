package debug_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// A page observes its ports until it is closed.
func ExampleNew() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	page := debug.New(debug.Port("echo", port))
	fmt.Println(debug.TakeSnapshot(port, 0, 0).Observed.IsZero())
	page.Close()
	fmt.Println(debug.TakeSnapshot(port, 0, 0).Observed.IsZero())
	// Output:
	// false
	// true
}

// A page shows several ports. One of them has a function that returns the texts of its keys.
func ExamplePort() {
	sessions, err := socknotify.New[*session]()
	if err != nil {
		log.Fatal(err)
	}
	defer sessions.Close()
	jobs, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()
	page := debug.New(
		debug.Port("sessions", sessions, func(s *session) string { return s.name }),
		debug.Port("jobs", jobs),
	)
	defer page.Close()
	fmt.Println(ask(page, "http://localhost:6060/debug/socknotify/status?port=jobs"))
	// Output: 200
}

// The page serves other machines, so it is protected by a password.
func ExampleAllowRemote() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	page := debug.New(debug.Port("echo", port), debug.AllowRemote())
	defer page.Close()
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "ops" || password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
	fmt.Println(ask(guarded, "http://192.0.2.1:6060/debug/socknotify/"))
	// Output: 401
}

// ask returns the status of the answer to a request. The request comes from another machine, or from this one if
// the URL says so.
func ask(h http.Handler, url string) int {
	r := httptest.NewRequest("GET", url, nil)
	if r.Host == "localhost:6060" {
		r.RemoteAddr = "127.0.0.1:40000"
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
