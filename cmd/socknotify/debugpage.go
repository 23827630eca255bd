package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/socknotify/socknotify/debug"
)

// debugPath is where the command mounts its live page.
const debugPath = "/debug/socknotify/"

// A debugPage is the live page of --debug-addr. It is nil without that flag.
type debugPage struct {
	listener net.Listener
	log      io.Writer
	server   *http.Server
	page     *debug.Handler
	serving  sync.WaitGroup
}

// listenDebug listens on the address, so that a wrong address is reported before anything is served.
func listenDebug(addr string, log io.Writer) (*debugPage, error) {
	if addr == "" {
		return nil, nil
	}
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--debug-addr %s: %w", addr, err)
	}
	if ip, ok := netip.AddrFromSlice(a.IP); !ok || !ip.Unmap().IsLoopback() {
		return nil, fmt.Errorf("--debug-addr %s: must be a loopback address, such as 127.0.0.1:6060", addr)
	}
	l, err := net.ListenTCP("tcp", a)
	if err != nil {
		return nil, failure{fmt.Errorf("--debug-addr: %w", err)}
	}
	return &debugPage{listener: l, log: log}, nil
}

// mount serves a page of a server, and a readiness check.
func (d *debugPage) mount(server interface{ Ready() bool }, options ...debug.Option) {
	if d == nil {
		return
	}
	d.page = debug.New(options...)
	mux := http.NewServeMux()
	mux.Handle(debugPath, d.page)
	mux.Handle("/readyz", debug.Ready(server))
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	d.serving.Go(func() { d.server.Serve(d.listener) }) // until close
	fmt.Fprintf(d.log, "live page on http://%v%s\n", d.listener.Addr(), debugPath)
}

func (d *debugPage) close() {
	switch {
	case d == nil:
	case d.server == nil:
		d.listener.Close()
	default:
		d.page.Close() // and ends the traces that are being read
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d.server.Shutdown(ctx)
		d.server.Close()
		d.serving.Wait()
	}
}
