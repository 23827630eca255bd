// Command tutorial is the last step of docs/tutorial.md: step5 with metrics for Prometheus.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/server"
)

type state struct{ bytes int }

type conn = *server.Conn[state]

type echo struct{}

func (*echo) Open(c conn) error { return nil }

func (*echo) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	c.Value.bytes += n
	_, err = c.Write(buf[:n])
	return err
}

func (*echo) Close(c conn, cause error) {}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	debugAddr := flag.String("debug-addr", "127.0.0.1:6060", "address of the live page")
	flag.Parse()

	pages, err := net.Listen("tcp", *debugAddr)
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[state]{
		Handler:     &echo{},
		IdleTimeout: 5 * time.Minute,
		MaxConns:    12_000,
		TimeCalls:   true,
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", debug.New(debug.Server("echo", s)))
	mux.Handle("/readyz", debug.Ready(s))
	var collector prometheus.Collector
	collector.AddServer("echo", s)
	registry := client.NewRegistry()
	registry.MustRegister(&collector)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	go http.Serve(pages, mux)
	log.Printf("live page on http://%v/debug/socknotify/", pages.Addr())

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
	err = <-stopped
	log.Printf("stopped: %v; %+v", err, s.Stats())
}
