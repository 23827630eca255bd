package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/park"
)

//go:embed http.html
var httpPage string

type httpFlags struct {
	listenFlags
	linger time.Duration
}

func serveHTTPCommand() *cobra.Command {
	f := &httpFlags{}
	c := &cobra.Command{
		Use:   "http",
		Short: "Serve HTTP, with idle connections parked",
		Long: "Serve a page on /, an echo of what is posted to /echo, and counts on /stats, with net/http. Idle keep-alive\n" +
			"connections are parked: they hold neither goroutine nor buffer. An interrupt ends it and prints totals.",
		Example: "  socknotify serve http --addr 127.0.0.1:9000\n  socknotify serve http --tls",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(c)
	c.Flags().DurationVar(&f.linger, "linger", 500*time.Millisecond,
		"time for which an idle connection keeps its goroutine; 0 parks at once")
	return c
}

func (f *httpFlags) run(cmd *cobra.Command) error {
	if f.linger < 0 {
		return fmt.Errorf("--linger %v: must not be negative", f.linger)
	}
	addr, config, page, err := f.start(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer page.close()
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return failure{err}
	}
	w := newWeb(f, log.New(cmd.ErrOrStderr(), "", 0))
	w.site.TimeCalls = page != nil
	scheme := "http"
	if config != nil {
		scheme, w.site.Server.TLSConfig = "https", config
	}
	start := time.Now()
	fmt.Fprintf(cmd.ErrOrStderr(), "%s://%v/: %s\n", scheme, listener.Addr(), f.backend)
	page.mount(&w.site, debug.HTTPServer("http", &w.site))
	stop := func(ctx context.Context) {
		if w.site.Shutdown(ctx) != nil { // the time is over
			w.site.Close()
		}
	}
	serve := func(l net.Listener) error { return serveSite(&w.site, l) }
	if err := serveUntil(cmd.Context(), stop, serve, net.Listener(listener)); err != nil {
		return failure{err}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "connections %d  requests %d  bytes %d  seconds %.1f\n",
		w.connections.Load(), w.requests.Load(), w.bytes.Load(), time.Since(start).Seconds())
	return nil
}

// serveSite serves TLS if the server has a configuration for it.
func serveSite(site *park.HTTPServer, l net.Listener) error {
	if site.Server.TLSConfig != nil {
		return site.ServeTLS(l, "", "")
	}
	return site.Serve(l)
}

// A web is the service of serve http.
type web struct {
	site                         park.HTTPServer
	open                         atomic.Int64
	connections, requests, bytes atomic.Int64
}

// maxEcho is the largest body that /echo accepts.
const maxEcho = 1 << 20

func newWeb(f *httpFlags, log *log.Logger) *web {
	w := &web{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/html; charset=utf-8")
		out.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
		io.WriteString(out, httpPage)
	})
	mux.HandleFunc("POST /echo", func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, maxEcho))
		if err != nil {
			http.Error(out, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.Header().Set("X-Content-Type-Options", "nosniff")
		out.Header().Set("Content-Length", strconv.Itoa(len(body)))
		n, _ := out.Write(body)
		w.bytes.Add(int64(n))
	})
	mux.HandleFunc("GET /stats", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(out, "open %d\nparked %d\nrequests %d\n", w.open.Load(), w.site.Stats().Parked, w.requests.Load())
	})
	w.site.Backend = f.backend
	w.site.Linger = f.linger
	if f.linger == 0 {
		w.site.Linger = -1 // park at once
	}
	w.site.Server = &http.Server{
		Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			w.requests.Add(1)
			mux.ServeHTTP(out, r)
		}),
		ConnState: w.changed, ErrorLog: log, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: f.idle,
	}
	return w
}

func (w *web) changed(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.connections.Add(1)
		w.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		w.open.Add(-1)
	}
}
