package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/trust"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// routeWait bounds the time that a member waits for the others before it serves.
const routeWait = 3 * time.Second

// last is the time that connections have to end after the drain.
const last = 10 * time.Second

// maxSilence is the time after which a connection ends whose peer acknowledges nothing that was sent, if the system can do
// that (boundSilence).
var maxSilence = 30 * time.Second

// run runs a node until ctx is done, and drains it then.
func run(ctx context.Context, o *options, log *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ln, err := net.Listen("tcp", o.addr) // first, so that a wrong address is reported at once
	if err != nil {
		return err
	}
	defer ln.Close()
	backup, err := o.prepare(ctx, log)
	if err != nil {
		return err
	}
	defer backup.Close() // which may be nil
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var certs *trust.Certificates // nil without --cert
	if o.cert != "" {
		if certs, err = trust.Open(watching, trust.Files{Cert: o.cert, Key: o.key}, log); err != nil {
			return err
		}
	}
	// Probes and clients are answered while the gateway waits for other members.
	var front atomic.Pointer[http.Handler]
	unready := gateway.Unready(o.config)
	front.Store(&unready)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(o.h2c)
	server := &park.HTTPServer{HTTP2: &http2.Server{ExtendedConnect: true}, Server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(*front.Load()).ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateNew {
				boundSilence(conn)
			}
		},
		Protocols: protocols,
		TLSConfig: &tls.Config{GetCertificate: certs.Get},
	}}
	defer server.Close()
	ended := make(chan error, 1)
	serving, stopped := context.WithCancel(ctx)
	go func() {
		defer stopped()
		if o.cert != "" {
			ended <- server.ServeTLS(ln, "", "")
			return
		}
		ended <- server.Serve(ln)
	}()
	var current atomic.Pointer[gateway.Gateway]
	changed := func() { // something may have lost events between nodes
		if g := current.Load(); g != nil {
			g.Changed()
		}
	}
	node, end, err := o.connect(changed)
	if err != nil {
		return err
	}
	defer end()
	go func() {
		for {
			select {
			case <-hangups:
				certs.Reload()
				node.Reload()
			case <-watching.Done():
				return
			}
		}
	}()
	g, err := gateway.New(serving, o.config)
	if err != nil {
		return earlier(ended, err)
	}
	defer g.Close() // also if Shutdown has failed
	current.Store(g)
	changed() // it may have happened while the gateway was made
	if node != nil {
		watching, stopWatching := context.WithCancel(watching) // before the node is closed
		defer stopWatching()
		go node.Watch(watching, changed)
		waiting, cancel := context.WithTimeout(ctx, routeWait) // one of the others may have ended
		node.WaitRoutes(waiting)
		cancel()
	}
	handler := http.Handler(g)
	if o.demo {
		handler = withDemo(g)
	}
	front.Store(&handler)
	page, err := o.serveDebug(g, server, node)
	if err != nil {
		return err
	}
	defer page()
	log.Info("serving", "address", ln.Addr().String(), "authorization", o.config.Authorize != nil)
	return o.finish(ctx, g, server, ended, log)
}

// earlier returns the error that has ended the server, such as for a wrong certificate, or else
// err.
func earlier(ended chan error, err error) error {
	select {
	case first := <-ended:
		return first
	default:
		return err
	}
}

// prepare reads the files of the options. It returns that of --restore, or nil.
func (o *options) prepare(ctx context.Context, log *slog.Logger) (backup *os.File, err error) {
	o.node.Logger, o.config.Logger, o.jwks.Logger = log, log, log
	if o.config.Authorize, err = o.authorize(ctx); err != nil {
		return nil, err
	}
	if o.config.Webhooks.Secret, err = o.hookSecret(); err != nil {
		return nil, err
	}
	if o.debugToken != "" {
		if o.debugSecret, err = readSecret("--debug-token", o.debugToken, 16); err != nil {
			return nil, err
		}
	}
	if o.natsPassword != "" {
		password, err := readSecret("--nats-addr-password", o.natsPassword, 16)
		if err != nil {
			return nil, err
		}
		o.node.ListenPassword = string(password)
	}
	if o.restore == "" {
		return nil, nil
	}
	if backup, err = os.Open(o.restore); err == nil {
		o.config.Stream.Restore = backup
	}
	return backup, err
}

// authorize returns what says which clients may do what, or nil.
func (o *options) authorize(ctx context.Context) (func(*http.Request) (gateway.Grant, error), error) {
	switch {
	case o.jwks.URL != "":
		return o.jwks.Authorize(ctx)
	case o.jwtSecret == "":
		return nil, nil
	}
	secret, err := readSecret("--jwt-secret", o.jwtSecret, 32)
	if err != nil {
		return nil, err
	}
	return gateway.JWT("HS256", secret, o.jwks.Require), nil
}

// readSecret returns what a file of a flag has, without white space around it.
func readSecret(flag, name string, least int) ([]byte, error) {
	secret, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if secret = bytes.TrimSpace(secret); len(secret) < least {
		return nil, fmt.Errorf("%s: want at least %d bytes, got %d", flag, least, len(secret))
	}
	return secret, nil
}

// hookSecret returns the secret of --webhook-secret, if there is one.
func (o *options) hookSecret() ([]byte, error) {
	if o.webhookSecret == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.webhookSecret)
	if err != nil {
		return nil, err
	}
	text, encoded := strings.CutPrefix(string(bytes.TrimSpace(b)), "whsec_")
	if !encoded {
		return []byte(text), nil
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("--webhook-secret: %w", err)
	}
	return secret, nil
}

// connect connects to NATS. node is nil if that runs elsewhere.
func (o *options) connect(changed func()) (node *gateway.Node, end func(), err error) {
	if o.nats.url != "" {
		again := nats.ReconnectHandler(func(*nats.Conn) { changed() })
		if o.config.Conn, err = o.nats.connect(nats.MaxReconnects(-1), again); err != nil {
			return nil, nil, err
		}
		return nil, o.config.Conn.Close, nil
	}
	if node, err = gateway.Start(o.node); err != nil {
		return nil, nil, err
	}
	o.config.Conn, o.config.StoreError = node.Conn, node.StoreError
	return node, node.Close, nil
}

// finish waits for the end, and drains the gateway.
func (o *options) finish(ctx context.Context, g *gateway.Gateway, server *park.HTTPServer,
	ended chan error, log *slog.Logger) error {
	var failed error
	select {
	case <-ctx.Done():
		log.Info("draining", "clients", g.Stats().Conns)
		draining, cancel := context.WithTimeout(context.Background(), o.drain+last)
		g.Drain(draining, o.drain)
		cancel()
	case <-g.Failed():
		failed = errors.New("the stream was replaced, or has lost events that were acknowledged")
	case failed = <-ended:
	}
	closing, cancel := context.WithTimeout(context.Background(), last)
	defer cancel()
	// At the same time: the server waits for streams of HTTP/2 that the gateway ends.
	clients := make(chan error, 1)
	go func() { clients <- g.Shutdown(closing) }()
	if err := server.Shutdown(closing); err != nil {
		server.Close()
	}
	if err := <-clients; failed == nil {
		failed = err
	}
	return failed
}

// status is what /status of the debug address shows, besides the live page.
type status struct {
	Name  string
	Ready bool
	gateway.Stats
	Routes  int              // connections to other members; there are several to each
	Members []gateway.Member // servers with a replica of the stream
	Streams []gateway.Stream
	Slowest []gateway.SlowClient // for which the most bytes wait
	Busiest []gateway.Topic      // with the most clients
}

// The numbers of topics and of slow clients on the status page.
const (
	busiest = 100
	slowest = 20
)

//go:embed page
var pages embed.FS

// servePages adds pages to a mux: from the name of a file to its path.
func servePages(mux *http.ServeMux, names map[string]string) {
	for name, path := range names {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			access.BoundBody(w, r)
			http.ServeFileFS(w, r, pages, "page/"+name)
		})
	}
}

// withDemo returns a handler that serves the demo page, and everything else by g.
func withDemo(g http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", g)
	servePages(mux, map[string]string{"demo.html": "/demo/{$}", "demo.js": "/demo/demo.js", "style.css": "/demo/style.css"})
	return mux
}

// ownHost refuses requests to a loopback address that pages of other sites make, under a name of
// their own that stands for it.
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.BoundBody(w, r)
		local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ok && local.IP.IsLoopback() && !access.KnownHost(r.Host, nil) {
			http.Error(w, "this host is not served here", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withToken asks requests for a token, if there is one: as a bearer's, or as the password of a user
// of any name, for which browsers ask.
func withToken(token []byte, next http.Handler) http.Handler {
	if token == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			_, given, _ = r.BasicAuth()
		}
		if subtle.ConstantTimeCompare([]byte(given), token) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="socknotify-push"`)
			http.Error(w, "want the token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveDebug serves the live page, the status page, /metrics and /status, on an address of their own. It returns a function
// that ends that.
func (o *options) serveDebug(g *gateway.Gateway, server *park.HTTPServer, node *gateway.Node) (func(), error) {
	if o.debugAddr == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", o.debugAddr)
	if err != nil {
		return nil, err
	}
	page := debug.New(debug.HTTPServer("http", server), debug.Lot("push", g.Lots()[0]))
	collector := new(prometheus.Collector)
	collector.AddHTTPServer("http", server)
	collector.AddLot("push", g.Lots()[0])
	registry := client.NewRegistry()
	registry.MustRegister(collector, gateway.NewCollector(g))
	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	servePages(mux, map[string]string{"status.html": "/{$}", "status.js": "/status.js", "style.css": "/style.css"})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s := status{Ready: g.Ready(), Stats: g.Stats(), Members: g.Members(), Streams: g.Streams(),
			Slowest: g.Slowest(slowest), Busiest: g.Topics(busiest)}
		if node != nil {
			s.Name, s.Routes = node.Server.Name(), node.Server.NumRoutes()
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(s)
	})
	hs := &http.Server{Handler: ownHost(withToken(o.debugSecret, mux)), ReadHeaderTimeout: 10 * time.Second}
	go hs.Serve(ln)
	return func() {
		page.Close()
		hs.Close()
	}, nil
}
