package http2_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/websocket"
)

// A server of HTTP/1.1 and of HTTP/2 without TLS, both parked.
func Example() {
	server := park.HTTPServer{
		Server: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "hello by ", r.Proto)
			}),
			Protocols: new(http.Protocols),
		},
		HTTP2:  new(http2.Server),
		Linger: -1, // park immediately
	}
	server.Server.Protocols.SetHTTP1(true)
	server.Server.Protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	r, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	fmt.Printf("%s %v\n", body, err)
	for server.Stats().Parked != 1 {
		time.Sleep(time.Millisecond) // it is parked soon after its answer; an example has no testing.TB
	}
	fmt.Println(server.Shutdown(context.Background()), <-served)
	// Output:
	// hello by HTTP/2.0 <nil>
	// <nil> http: Server closed
}

func ExampleServer() {
	handler := http.NotFoundHandler()
	server := park.HTTPServer{Server: &http.Server{Handler: handler}, HTTP2: new(http2.Server)}
	err := server.ListenAndServeTLS("cert.pem", "key.pem")
	log.Fatal(err)
}

// WebSockets are streams of HTTP/2 connections, for clients that know of the extension. The route
// is not for GET alone: such a request has the method CONNECT.
func ExampleServer_webSockets() {
	chat := &websocket.Server{OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
		return c.Write(kind, payload)
	}}
	mux := http.NewServeMux()
	mux.Handle("/chat", chat)
	server := park.HTTPServer{
		Server: &http.Server{Handler: mux},
		HTTP2:  &http2.Server{ExtendedConnect: true},
	}
	err := server.ListenAndServeTLS("cert.pem", "key.pem")
	log.Fatal(err)
}
