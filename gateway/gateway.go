package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/mercure"
	"github.com/socknotify/socknotify/gateway/internal/order"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/transport"
	"github.com/socknotify/socknotify/park"
)

// A Gateway serves one node's clients. It is an http.Handler with the paths that openapi.yaml
// describes; those of Mercure's protocol are there if Config.Mercure enables it. A program serves it by
// a park.HTTPServer, so that connections between requests are parked too. Its methods may be called
// concurrently.
type Gateway struct {
	config     Config
	hub        *hub.Hub
	publisher  *stream.Publisher
	access     *access.Control
	presence   *presence.Presence
	orders     *order.Orders
	lot        *park.Lot
	transports *transport.Server
	mercure    *mercure.Server // nil without Config.Mercure
	mux        *http.ServeMux
	patterns   []string // of mux
	failed     chan struct{}
	failOnce   sync.Once
	sweeper    sync.WaitGroup
}

// New returns a gateway. It makes the streams if there are none. ctx bounds that, which in a cluster
// takes until a majority of its members runs.
func New(ctx context.Context, config Config) (*Gateway, error) {
	if err := config.prepare(); err != nil {
		return nil, err
	}
	layout, err := stream.Make(ctx, config.Conn, stream.Config(config.Stream), config.MaxMessage, config.Logger)
	if err != nil {
		return nil, err
	}
	lot, err := park.New(park.Config{Logger: config.Logger, Name: config.Name})
	if err != nil {
		return nil, err
	}
	h, err := hub.New(ctx, config.Conn, layout, config.MaxMessage, config.Logger)
	if err != nil {
		lot.Close()
		return nil, err
	}
	g := &Gateway{config: config, hub: h, lot: lot, failed: make(chan struct{})}
	h.OnReset = g.fail
	if g.publisher, err = stream.NewPublisher(config.Conn, h.Histories(), h.Epoch, config.MaxMessage, config.StoreError); err != nil {
		lot.Close()
		h.Close()
		return nil, err
	}
	if err := g.assemble(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// assemble makes the parts on top of the hub.
func (g *Gateway) assemble(ctx context.Context) (err error) {
	c := &g.config
	g.access = access.New(c.access(), g.hub, g.publisher)
	g.presence = presence.New(g.access, c.Presence)
	g.transports = transport.New(transport.Config{MaxQueued: c.MaxQueued, SlowPolicy: c.SlowPolicy, Compression: c.Compression, CompressMin: c.CompressMin,
		WriteTimeout: c.WriteTimeout, Heartbeat: c.Heartbeat, Retry: c.Retry, Name: c.Name, Logger: c.Logger, Lot: g.lot}, g.access, g.presence)
	if c.hasPresence() || c.Mercure != nil && c.Mercure.Subscriptions { // which asks the nodes too
		if err := g.presence.Start(); err != nil {
			return err
		}
	}
	if c.Mercure != nil {
		if g.mercure, err = mercure.New(mercure.Config(*c.Mercure), g.transports, g.presence); err != nil {
			return err
		}
	}
	g.hub.OnLeaderless = g.transports.SendAway
	g.orders = order.New(g.access, g.transports)
	g.route()
	if err := g.publisher.Forward(g.hub.Ctx, &g.hub.Work); err != nil {
		return err
	}
	if c.Authorize != nil || g.access.Hooks != nil { // otherwise no client's time ends
		g.sweeper.Go(g.transports.Sweep)
	}
	if c.Authorize != nil { // otherwise no client may disconnect others
		return g.orders.Follow(ctx, &g.sweeper)
	}
	return nil
}

// route says which method answers which request.
func (g *Gateway) route() {
	g.mux = http.NewServeMux()
	g.transports.Route(g.handle)
	g.handle("GET /presence", g.presence.Serve)
	g.handle("POST /disconnect", g.orders.Serve)
	g.handle("POST /unsubscribe", g.orders.Serve)
	for path, f := range files {
		g.handle("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			access.AllowOrigin(w, r, g.config.Origins)
			f.serve(w, r)
		})
	}
	for path, origins := range map[string][]string{
		"/events": g.config.Origins, "/connection": g.config.Origins, "/poll": g.config.Origins, "/presence": g.config.Origins,
		"/publish": g.config.PublishOrigins, "/disconnect": g.config.PublishOrigins,
		"/unsubscribe": g.config.PublishOrigins,
	} {
		g.handle("OPTIONS "+path, func(w http.ResponseWriter, r *http.Request) {
			access.AllowOrigin(w, r, origins)
			w.WriteHeader(http.StatusNoContent)
		})
	}
	if g.mercure != nil {
		g.mercure.Route(g.handle)
	}
	g.handle("GET /healthz", serveHealth)
	g.handle("GET /readyz", g.serveReady)
}

// handle makes f answer the requests of a pattern.
func (g *Gateway) handle(pattern string, f http.HandlerFunc) {
	g.patterns = append(g.patterns, pattern)
	g.mux.HandleFunc(pattern, f)
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	access.BoundBody(w, r)
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if !probe && !g.access.Config.AllowsHost(r) {
		g.access.Reject(w, r, http.StatusMisdirectedRequest, "this host is not served here")
		return
	}
	g.mux.ServeHTTP(w, r)
}

// Lots returns the lots of the connections, for observers such as package debug: that of
// Server-Sent Events, and that of WebSockets, once there was one. The gateway owns them. The
// connections of long polls are in those of the HTTP server.
func (g *Gateway) Lots() []*park.Lot {
	return append([]*park.Lot{g.lot}, g.transports.Sockets.Lots()...)
}

// Changed tells the gateway that something has happened that may have lost events between nodes,
// such as the loss of a route. It compares its topics with the stream then, as it does every few
// seconds.
func (g *Gateway) Changed() { g.hub.AuditNow() }

// Failed returns a channel that is closed if the stream was deleted, replaced, or has lost events
// that were acknowledged. The gateway cannot go on then: ids that clients have mean other events.
func (g *Gateway) Failed() <-chan struct{} { return g.failed }

func (g *Gateway) fail() { g.failOnce.Do(func() { close(g.failed) }) }

// Ready reports whether the gateway accepts clients and events.
func (g *Gateway) Ready() bool { return g.unready() == nil }

// unready returns why the gateway does not accept clients or events, or nil.
func (g *Gateway) unready() error {
	select {
	case <-g.failed:
		return stream.ErrNoStream
	default:
	}
	switch {
	case g.access.Draining.Load():
		return access.ErrDrain
	case !g.config.Conn.IsConnected():
		return errDisconnected
	case g.hub.Leaderless():
		return stream.ErrNoLeader
	case g.config.StoreError != nil:
		return g.config.StoreError()
	}
	return nil
}

var errDisconnected = errors.New("gateway: not connected to NATS")

func (g *Gateway) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := g.unready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ready\n"))
}

// Drain begins the end: the gateway is not ready from now on, refuses clients, and tells those that
// it has, one after the other over the given time, to come back elsewhere. It returns when all were
// told, or ctx is done. Shutdown must follow.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) {
	g.access.Draining.Store(true)
	g.transports.Drain(ctx, over)
}

// Shutdown closes the connections of all clients, and waits until everything has ended. If ctx is
// done first, it does what Close does, and returns the cause of ctx. If ctx is nil, it does nothing
// and fails with socknotify.ErrInvalid.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("gateway: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	g.access.Stop()
	g.transports.Polls.Close()
	var kinds sync.WaitGroup // at the same time, so that none waits for the peers of another
	var sockets, events, mercure error
	kinds.Go(func() { sockets = g.transports.Sockets.Shutdown(ctx) })
	kinds.Go(func() { events = g.transports.Events.Shutdown(ctx) })
	kinds.Go(func() { mercure = g.mercure.Shutdown(ctx) })
	kinds.Wait()
	err := cmp.Or(sockets, events, mercure, g.lot.Shutdown(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.end()
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the connections of all clients at once. It does not wait for what runs. It returns
// nil.
func (g *Gateway) Close() error {
	g.access.Stop()
	g.transports.Sockets.Close()
	g.transports.Events.Close()
	g.mercure.Close()
	g.transports.Polls.Close()
	g.lot.Close()
	go g.end()
	return nil
}

// end waits until everything has ended. The connections of clients must be closed.
func (g *Gateway) end() {
	g.transports.Sockets.Shutdown(context.Background())
	g.transports.Events.Shutdown(context.Background())
	g.mercure.Shutdown(context.Background())
	g.lot.Shutdown(context.Background())
	g.access.Opening.Wait()
	g.transports.Polls.Waiting.Wait()
	g.access.Hooks.Close()
	g.hub.Close()
	g.sweeper.Wait()
	g.access.Log.Flush()
}

// Unready returns a handler for the time until [New] has returned, which in a cluster takes until a
// majority of the members runs. /healthz says that the process runs. Other requests are answered as
// by a gateway that cannot serve clients now.
func Unready(config Config) http.Handler {
	config.Retry = cmp.Or(config.Retry, defaultRetry)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.BoundBody(w, r)
		if r.URL.Path == "/healthz" {
			serveHealth(w, r)
			return
		}
		access.AllowOrigin(w, r, config.Origins)
		access.ComeBack(w, r, config.Retry, errUnready)
	})
}

var errUnready = errors.New("gateway: not ready yet")

func serveHealth(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) }
