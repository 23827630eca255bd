package park_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/park"
)

// An echo server whose idle connections, and those that have sent nothing yet, need no goroutine.
func ExampleServer() {
	server := park.Server{
		IdleTimeout: time.Hour,
		ReadTimeout: 5 * time.Second,
		MaxConns:    100_000,
		MaxRunning:  1000,
		Handler: func(conn net.Conn) error {
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			if err != nil {
				return err // closes the connection
			}
			_, err = conn.Write(buf[:n])
			return err
		},
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "hello")
	answer := make([]byte, 5)
	_, err = io.ReadFull(client, answer)
	fmt.Println(string(answer), err)

	fmt.Println(server.Shutdown(context.Background()), <-served)
	// Output:
	// hello <nil>
	// <nil> park: server closed
}

// A connection's state is what the function that Open returns refers to.
func ExampleServer_open() {
	server := park.Server{
		Open: func(net.Conn) (func(net.Conn) error, error) {
			calls := 0
			return func(conn net.Conn) error {
				buf := make([]byte, 4096)
				if _, err := conn.Read(buf); err != nil {
					return err
				}
				calls++
				_, err := fmt.Fprintln(conn, calls)
				return err
			}, nil
		},
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ln)
	defer server.Close()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for range 2 {
		var calls int
		fmt.Fprint(client, "count")
		fmt.Fscanln(client, &calls)
		fmt.Println(calls)
	}
	// Output:
	// 1
	// 2
}

// A server that knows nothing of parking, here that of net/http, gets a connection when its client has sent something.
func ExampleListener() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	go server.Serve(park.Listener(ln))
	defer server.Close()

	answer, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(string(text), err)
	// Output: hello <nil>
}
