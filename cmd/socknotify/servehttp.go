package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/park"
)

//go:embed http.html
var httpPage string

type httpFlags struct {
	addr, backend, debugAddr string
	tls                      bool
	cert, key                string
	linger, idle             time.Duration
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
	flags := c.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:9000", "address to listen on; port 0 is any")
	flags.BoolVar(&f.tls, "tls", false, "serve TLS, with a certificate made for this run unless --cert and --key are given")
	flags.StringVar(&f.cert, "cert", "", "file with the certificate, for TLS")
	flags.StringVar(&f.key, "key", "", "file with its key")
	flags.DurationVar(&f.linger, "linger", 500*time.Millisecond, "time for which an idle connection keeps its goroutine; 0 parks at once")
	flags.DurationVar(&f.idle, "idle", 0, "close connections that are idle for this time; 0 is never")
	flags.StringVar(&f.backend, "backend", "", "backend to run on (default $"+socknotify.BackendEnv+", or the system's first)")
	flags.StringVar(&f.debugAddr, "debug-addr", "", "loopback address of the live page; no page without it")
	return c
}

func (f *httpFlags) run(cmd *cobra.Command) error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return errors.New("--cert and --key go together")
	case f.linger < 0:
		return fmt.Errorf("--linger %v: must not be negative", f.linger)
	case f.idle < 0:
		return fmt.Errorf("--idle %v: must not be negative", f.idle)
	}
	addr, err := resolveAddr(f.addr)
	if err != nil {
		return err
	}
	backend, err := resolve(f.backend)
	if err != nil {
		return err
	}
	var config *tls.Config
	if f.tls || f.cert != "" {
		if config, err = tlsConfig(f.cert, f.key, addr); err != nil {
			return failure{err}
		}
	}
	page, err := listenDebug(f.debugAddr, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer page.close()
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return failure{err}
	}
	w := newWeb(f, backend, log.New(cmd.ErrOrStderr(), "", 0))
	w.site.TimeCalls = page != nil
	scheme := "http"
	if config != nil {
		scheme, w.site.Server.TLSConfig = "https", config
	}
	start := time.Now()
	fmt.Fprintf(cmd.ErrOrStderr(), "%s://%v/: %s\n", scheme, listener.Addr(), backend)
	page.mount(&w.site, debug.HTTPServer("http", &w.site))
	ended := make(chan error, 1)
	go func() {
		if config != nil {
			ended <- w.site.ServeTLS(listener, "", "")
		} else {
			ended <- w.site.Serve(listener)
		}
	}()
	select {
	case <-cmd.Context().Done():
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if w.site.Shutdown(ctx) != nil { // the time is over
			w.site.Close()
		}
		<-ended
	case err := <-ended:
		return failure{err}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "connections %d  requests %d  bytes %d  seconds %.1f\n",
		w.connections.Load(), w.requests.Load(), w.bytes.Load(), time.Since(start).Seconds())
	return nil
}

// A web is the service of serve http.
type web struct {
	site                         park.HTTPServer
	open                         atomic.Int64
	connections, requests, bytes atomic.Int64
}

// maxEcho is the largest body that /echo accepts.
const maxEcho = 1 << 20

func newWeb(f *httpFlags, backend string, log *log.Logger) *web {
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
	w.site.Backend = backend
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
