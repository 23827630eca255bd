// Command step4 is an echo server on package server.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/socknotify/socknotify/server"
)

// A client is the state of a connection. The calls of its handler are sequential.
type client struct{ bytes int }

type conn = *server.Conn[client]

type echo struct{}

func (*echo) Open(c conn) error { return nil }

func (*echo) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err // io.EOF closes the connection; no data is not an error
	}
	c.Value.bytes += n
	_, err = c.Write(buf[:n]) // bytes that the peer does not receive now are queued
	return err
}

func (*echo) Close(c conn, cause error) {
	if cause != nil && cause != server.ErrServerClosed {
		log.Printf("%v: %v after %d bytes", c.RemoteAddr(), cause, c.Value.bytes)
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	s := &server.Server[client]{Handler: &echo{}, IdleTimeout: 5 * time.Minute}

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	stopped := make(chan error, 1)
	context.AfterFunc(interrupted, func() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Shutdown(limit)
	})

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.Addr())
	if err := s.Serve(listener); err != server.ErrServerClosed {
		log.Fatal(err)
	}
	log.Println("stopped:", <-stopped)
}
