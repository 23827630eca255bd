package park_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park"
)

// An echo server whose idle connections need neither a goroutine nor a buffer.
func ExampleLot() {
	lot, err := park.New(park.Config{IdleTimeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()

	buffers := sync.Pool{New: func() any { return new([4096]byte) }}
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		buf := buffers.Get().(*[4096]byte)
		defer buffers.Put(buf)
		n, err := conn.Read(buf[:])
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		if err == nil {
			err = lot.Park(conn, serve)
		}
		if err != nil { // the peer has closed, the timeout has expired, or the lot is closed
			conn.Close()
		}
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if lot.Park(conn, serve) != nil {
				conn.Close()
			}
		}
	}()

	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line)
	// Output: hello
}

func ExampleHTTPServer() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := park.HTTPServer{Server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }),
	}}
	go server.Serve(ln)
	defer server.Shutdown(context.Background())

	r, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	fmt.Printf("%s\n", body)
	http.DefaultClient.CloseIdleConnections()
	// Output: hello
}

func ExampleHTTPServer_tls() {
	handler := http.FileServer(http.Dir("."))

	server := park.HTTPServer{Server: &http.Server{Handler: handler}}
	err := server.ListenAndServeTLS("cert.pem", "key.pem")

	log.Fatal(err)
}
