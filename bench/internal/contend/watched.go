package contend

import (
	"net"
	"net/http"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/metrics/prometheus"
	snserver "github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// The paths of the HTTP server beside a watched server.
const (
	MountPath  = "/mount" // creates the debug page
	PagePath   = "/debug/socknotify/"
	ScrapePath = "/metrics"
)

// serveWatched is package server, with a debug page that can be mounted, and metrics. It calls
// ready with two addresses; the second is that of the HTTP server, which costs nothing without
// requests.
func serveWatched(p param.Params, backend string, ready func(string)) error {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var ports prometheus.Collector
	registry := client.NewRegistry()
	registry.MustRegister(&ports)
	s := &snserver.Server[struct{}]{
		Handler: new(echoed), Workers: p.Cores, Backend: backend,
		OnStart: func(all []*socknotify.Port[*snserver.Key]) {
			ports.Add("echo", all[0])
			go http.Serve(web, watchedMux(all[0], promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
		},
	}
	ready(l.LocalAddr().String() + " " + web.Addr().String())
	return s.ServeSocket(l)
}

func watchedMux(port *socknotify.Port[*snserver.Key], metrics http.Handler) *http.ServeMux {
	var page *debug.Handler // requests come one at a time
	mux := http.NewServeMux()
	mux.Handle(ScrapePath, metrics)
	mux.HandleFunc(MountPath, func(http.ResponseWriter, *http.Request) {
		page = debug.New(debug.Port("echo", port))
	})
	mux.HandleFunc(PagePath, func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(w, r) })
	return mux
}
