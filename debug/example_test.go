package debug_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

type session struct{ name string }

// A page for one port, with texts for its keys, on a server of its own.
func Example() {
	port, err := socknotify.New[*session]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()

	page := debug.New(debug.Port("chat", port, func(s *session) string { return s.name }))
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", page)

	server := httptest.NewServer(mux) // or http.ListenAndServe("127.0.0.1:6060", mux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/debug/socknotify/registrations")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s", body)
	// Output: {"port":"chat","total":0,"states":{},"matched":0,"offset":0,"rows":[]}
}

// A page for other machines, on a listener of its own and under a host name. Everyone who can reach that listener
// can see the page, so access to the listener must be restricted.
func ExampleAllowHosts() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	page := debug.New(debug.Port("chat", port), debug.AllowRemote(), debug.AllowHosts("chat.internal"))
	defer page.Close()

	r := httptest.NewRequest("GET", "http://chat.internal:6060/debug/socknotify/ports", nil)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output: 200
}

// A page on the default mux of a program.
func Example_default() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	page := debug.New(debug.Port("echo", port))
	http.Handle("/debug/socknotify/", page)
	log.Fatal(http.ListenAndServe("127.0.0.1:6060", nil))
}
