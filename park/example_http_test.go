package park_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/park"
)

// A complete program with a debug page that shows its parked connections.
func ExampleHTTPServer_ListenAndServe() {
	server := park.HTTPServer{
		Server: &http.Server{Handler: http.FileServer(http.Dir("."))},
		OnLot: func(lot *park.Lot) {
			http.Handle("/debug/socknotify/", debug.New(debug.Port("http", lot.Port())))
			go http.ListenAndServe("127.0.0.1:6060", nil)
		},
	}
	log.Fatal(server.ListenAndServe())
}

// A server with TLS. In production the certificate comes from an authority, usually in files.
func ExampleHTTPServer_ServeTLS() {
	cert, trusted, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := park.HTTPServer{
		Server: &http.Server{
			Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		},
		Linger: -1, // park immediately
	}
	served := make(chan error)
	go func() { served <- server.ServeTLS(ln, "", "") }()

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	r, err := client.Get("https://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	fmt.Printf("%s %v\n", body, err)
	for server.Stats().Parked != 1 {
		time.Sleep(time.Millisecond) // it is parked soon after its answer; an example has no testing.TB
	}
	server.SetKeepAlivesEnabled(false) // closes parked connections
	for server.Stats().Parked > 0 {
		time.Sleep(time.Millisecond) // it is closed soon; an example has no testing.TB
	}

	server.Shutdown(context.Background())
	fmt.Println(<-served, server.Close())
	client.CloseIdleConnections()
	// Output:
	// hello <nil>
	// http: Server closed <nil>
}
