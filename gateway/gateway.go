package gateway

import (
	"cmp"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// A SlowPolicy says what happens to a client whose queue is full.
type SlowPolicy = serving.SlowPolicy

const (
	// SlowClose closes the connection. The client comes back with the last id that it has got, and
	// misses nothing of durable topics.
	SlowClose = serving.SlowClose
	// SlowDrop drops events until there is room, and then tells the client that there is a gap.
	SlowDrop = serving.SlowDrop
)

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at
// once. A Burst of 0 means PerSecond.
type Rate = serving.Rate

// Config configures a [Gateway]. Conn is required. The zero value of another field is its default,
// and a negative number means none, but for those of Stream.
type Config struct {
	// Conn is a connection to NATS with JetStream, such as that of a [Node]. The Gateway does not
	// close it.
	Conn *nats.Conn
	// Stream describes the stream of the durable topics. It is made if it does not exist.
	Stream StreamConfig
	// StoreError, if not nil, reports why no event can be stored now, such as [Node.StoreError].
	// Publish fails with that for durable topics, instead of waiting for JetStream.
	StoreError func() error
	// Authorize says what the sender of a request may do. nil allows everything. It may be called
	// concurrently.
	Authorize func(*http.Request) (Grant, error)
	// Origins are the origins, such as https://example.org, whose pages may use the gateway from
	// browsers, besides the gateway's own. "*" allows all, without cookies.
	Origins []string
	// PublishOrigins are the origins whose pages may publish, besides the gateway's own. nil is
	// Origins. "*" allows all that send a token in the header Authorization, or need none: a
	// request with a cookie publishes only from the gateway's own origin or a listed one.
	PublishOrigins []string
	// Presence are the topics, or filters with wildcards, of which it is known who is there. There
	// are none by default.
	Presence []string
	// Mercure enables Mercure's protocol. It needs Authorize. nil is none.
	Mercure *MercureConfig
	// Webhooks are asked before clients may do something. There are none by default.
	Webhooks Webhooks
	// Hosts are the names under which clients reach the gateway, such as push.example.org; IP
	// addresses and localhost are always allowed. Requests for another host get the status 421. If
	// there are none, all names are allowed, except for a gateway without Authorize on a loopback
	// address: any page could use that one from a browser on the same machine, by a name of its own
	// that stands for the address. "*" allows all names.
	Hosts []string
	// MaxConns bounds the clients of this node, and AcceptRate those that are accepted in a second.
	// Others are answered with the status 503. 0 is no limit.
	MaxConns   int
	AcceptRate Rate
	// PublishRate, SubscribeRate and MessageRate limit each client: the events that it publishes,
	// its requests to subscribe, and the messages that it sends over WebSockets. The zero value is
	// no limit. A client is the Subject of its Grant, or else its address; of IPv6, the network of
	// 64 bits. Beyond the first two it gets the status 429, and beyond the third its WebSocket is
	// closed.
	PublishRate, SubscribeRate, MessageRate Rate
	// MaxMessage bounds the bytes of an event: Publish fails with ErrTooLong. 0 is 256 KiB; without
	// a limit of its own the gateway takes what NATS takes.
	MaxMessage int
	// MaxQueued bounds the bytes that wait for a client that reads too slowly, 0 is 256 KiB.
	// SlowPolicy says what happens then; the default is SlowClose.
	MaxQueued  int
	SlowPolicy SlowPolicy
	// Compression is the level, 1 to 9, with which events and answers are compressed for WebSockets
	// whose clients offer permessage-deflate, and CompressMin the length in bytes from which on
	// they are, as in websocket.Server. 0 is no compression, and 512 bytes. An event is compressed
	// once for all clients of the node. A client's messages may be compressed too. An event must
	// not have both a secret and data that others choose: its length shows whether they are alike.
	Compression, CompressMin int
	// WriteTimeout bounds the time for which a slow client takes nothing, and for which a WebSocket
	// does not answer a ping. 0 is 10 seconds.
	WriteTimeout time.Duration
	// Heartbeat is the time after which a silent connection gets a few bytes, and after which a
	// long poll is answered. 0 is 25 seconds.
	Heartbeat time.Duration
	// Retry is the time after which clients come back, on average. 0 is 3 seconds. Each gets a
	// value of its own around it.
	Retry time.Duration
	// Name is as in park.Config. The empty string is "push".
	Name string
	// Logger is nil for slog.Default. No query and no token is logged.
	Logger *slog.Logger
}

// A Gateway serves one node's clients. It is an http.Handler with the paths /events, /socket,
// /poll, /publish, /healthz and /readyz, and those of Mercure's protocol if Config.Mercure enables
// it. A program serves it by a park.HTTPServer, so that connections between requests are parked
// too. Its methods may be called concurrently.
type Gateway struct {
	config   Config
	conn     *nats.Conn
	js       jetstream.JetStream
	hub      *hub
	lot      *park.Lot
	events   *sse.Server
	polls    pollSet
	sockets  *websocket.Server
	mercure  *mercure // nil without Config.Mercure
	mux      *http.ServeMux
	hooks    *hooks
	arrivals *rate.Limiter
	// The limits of each client.
	publishing, subscribing, messages *limiter
	draining                          atomic.Bool
	failed                            chan struct{}
	failOnce                          sync.Once
	sweeper                           sync.WaitGroup
	log                               serving.Log
	slow                              sync.Mutex // guards what the WebSockets were not told

	mu      sync.Mutex
	closed  bool
	opening sync.WaitGroup // requests to subscribe whose handler has not returned yet
}

// New returns a gateway. It makes the stream if there is none. ctx bounds that, which in a cluster
// takes until a majority of its members runs.
func New(ctx context.Context, config Config) (*Gateway, error) {
	if err := config.prepare(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(config.Conn)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	name, err := makeStream(ctx, js, config.Stream, config.MaxMessage, config.Logger)
	if err != nil {
		return nil, err
	}
	lot, err := park.New(park.Config{Logger: config.Logger, Name: config.Name})
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: config, conn: config.Conn, js: js, lot: lot, failed: make(chan struct{})}
	if g.hub, err = newHub(ctx, config.Conn, name, config.MaxMessage, config.Logger); err != nil {
		lot.Close()
		return nil, err
	}
	g.hub.onReset, g.hub.carryOut = g.fail, g.carryOut
	if len(config.Presence) > 0 || config.Mercure != nil && config.Mercure.Subscriptions {
		if g.hub.presence, err = newPresence(g.hub, config.Presence); err != nil {
			lot.Close()
			g.hub.close()
			return nil, err
		}
	}
	g.log.Prefix, g.log.Name, g.log.Logger = "gateway: ", config.Name, func() *slog.Logger { return config.Logger }
	if r := config.AcceptRate; r.PerSecond > 0 {
		g.arrivals = rate.NewLimiter(rate.Limit(r.PerSecond), cmp.Or(r.Burst, r.PerSecond))
	}
	g.publishing, g.subscribing = newLimiter(config.PublishRate), newLimiter(config.SubscribeRate)
	g.messages = newLimiter(config.MessageRate)
	g.hooks = g.newHooks(config.Webhooks)
	g.events, g.sockets = g.newEvents(), g.newSockets()
	if err := g.newMercure(config.Mercure); err != nil {
		g.Close()
		return nil, err
	}
	g.route()
	if config.Authorize != nil || g.hooks != nil { // otherwise no client's time ends
		g.sweeper.Go(g.sweep)
	}
	if config.Authorize != nil { // otherwise no client may disconnect others
		if err := g.followOrders(ctx); err != nil {
			g.Close()
			return nil, err
		}
	}
	return g, nil
}

// route says which method answers which request.
func (g *Gateway) route() {
	g.mux = http.NewServeMux()
	g.mux.HandleFunc("GET /events", g.subscribe(g.serveEvents))
	g.mux.HandleFunc("GET "+socketPath, g.subscribe(g.serveSocket))
	g.mux.HandleFunc("CONNECT "+socketPath, g.subscribe(g.serveSocket)) // of HTTP/2
	g.mux.HandleFunc("GET /poll", g.subscribe(g.servePoll))
	g.mux.HandleFunc("POST /publish", g.servePublish)
	g.mux.HandleFunc("GET /presence", g.servePresence)
	g.mux.HandleFunc("POST /disconnect", g.serveControl)
	g.mux.HandleFunc("POST /unsubscribe", g.serveControl)
	g.mux.HandleFunc("GET /push.js", g.serveScript)
	for path, origins := range map[string][]string{
		"/events": g.config.Origins, "/poll": g.config.Origins, "/presence": g.config.Origins,
		"/publish": g.config.PublishOrigins, "/disconnect": g.config.PublishOrigins,
		"/unsubscribe": g.config.PublishOrigins,
	} {
		g.mux.HandleFunc("OPTIONS "+path, func(w http.ResponseWriter, r *http.Request) {
			allowOrigin(w, r, origins)
			w.WriteHeader(http.StatusNoContent)
		})
	}
	g.routeMercure()
	g.mux.HandleFunc("GET /healthz", serveHealth)
	g.mux.HandleFunc("GET /readyz", g.serveReady)
}

// prepare checks the fields and sets the defaults.
func (c *Config) prepare() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("gateway: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch s := c.Stream; {
	case c.Conn == nil:
		return invalid("Conn is nil")
	case !c.SlowPolicy.Valid():
		return invalid("SlowPolicy is unknown")
	case s.Replicas < 0 || s.MaxAge < 0 || s.MaxBytes < 0 || s.Window < 0:
		return invalid("a number of Stream is negative")
	case s.MaxAge > 0 && s.Window > s.MaxAge:
		return invalid("Stream.Window is %v, longer than Stream.MaxAge, %v", s.Window, s.MaxAge)
	}
	if err := c.check(invalid); err != nil {
		return err
	}
	largest := int(c.Conn.MaxPayload()) - maxHeaders
	if c.MaxMessage < 0 {
		c.MaxMessage = largest
	}
	c.MaxMessage = cmp.Or(c.MaxMessage, 256<<10)
	if c.MaxMessage > largest {
		return invalid("MaxMessage is %d; NATS takes at most %d bytes with headers", c.MaxMessage, c.Conn.MaxPayload())
	}
	c.MaxQueued = cmp.Or(c.MaxQueued, 256<<10)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, serving.DefaultTimeout)
	c.Heartbeat = cmp.Or(c.Heartbeat, 25*time.Second)
	c.Retry = cmp.Or(c.Retry, defaultRetry)
	c.Name = cmp.Or(c.Name, "push")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.PublishOrigins == nil {
		c.PublishOrigins = c.Origins
	}
	return nil
}

// check checks the rates, the level of compression and the topics.
func (c *Config) check(invalid func(format string, args ...any) error) error {
	for name, r := range map[string]Rate{"AcceptRate": c.AcceptRate, "PublishRate": c.PublishRate,
		"SubscribeRate": c.SubscribeRate, "MessageRate": c.MessageRate} {
		if r.Burst < 0 || r.Burst > 0 && r.PerSecond <= 0 {
			return invalid("%s has a Burst of %d and a PerSecond of %d", name, r.Burst, r.PerSecond)
		}
	}
	if c.Compression > flate.BestCompression {
		return invalid("Compression is %d, want at most %d", c.Compression, flate.BestCompression)
	}
	if c.Mercure != nil && c.Authorize == nil {
		return invalid("Mercure needs Authorize, because everyone could read what is private")
	}
	if err := c.Webhooks.check(); err != nil {
		return invalid("Webhooks: %v", err)
	}
	for _, t := range c.Presence {
		if err := checkTopic(t, true); err != nil {
			return invalid("Presence: %v", err)
		}
	}
	return nil
}

const defaultRetry = 3 * time.Second

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if !probe && !g.config.allowsHost(r) {
		g.reject(w, r, http.StatusMisdirectedRequest, "this host is not served here")
		return
	}
	g.mux.ServeHTTP(w, r)
}

// Lots returns the lots of the connections, for observers such as package debug: that of
// Server-Sent Events, and that of WebSockets, once there was one. The gateway owns them. The
// connections of long polls are in those of the HTTP server.
func (g *Gateway) Lots() []*park.Lot { return append([]*park.Lot{g.lot}, g.sockets.Lots()...) }

// Changed tells the gateway that something has happened that may have lost events between nodes,
// such as the loss of a route. It compares its topics with the stream then, as it does every few
// seconds.
func (g *Gateway) Changed() { g.hub.auditNow() }

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
		return errNoStream
	default:
	}
	switch {
	case g.draining.Load():
		return errDrain
	case !g.conn.IsConnected():
		return errDisconnected
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
	g.draining.Store(true)
	var all []*subscriber
	g.hub.clients.each(func(s *subscriber) { all = append(all, s) })
	began := time.Now()
	for i, s := range all {
		wait := time.Until(began.Add(part(over, i, len(all))))
		if wait > time.Millisecond && !sleep(ctx, wait) {
			return
		}
		s.to.end(g, errDrain)
	}
}

// part returns i n-ths of d. It divides first, because the product may be too long for a duration.
func part(d time.Duration, i, n int) time.Duration {
	return d / time.Duration(n) * time.Duration(i)
}

// Shutdown closes the connections of all clients, and waits until everything has ended. If ctx is
// done first, it does what Close does, and returns the cause of ctx. If ctx is nil, it does nothing
// and fails with socknotify.ErrInvalid.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("gateway: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	g.stop()
	g.polls.close()
	var kinds sync.WaitGroup // at the same time, so that none waits for the peers of another
	var sockets, events, mercure error
	kinds.Go(func() { sockets = g.sockets.Shutdown(ctx) })
	kinds.Go(func() { events = g.events.Shutdown(ctx) })
	kinds.Go(func() { mercure = g.mercure.shutdown(ctx) })
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
	g.stop()
	g.sockets.Close()
	g.events.Close()
	g.mercure.close()
	g.polls.close()
	g.lot.Close()
	go g.end()
	return nil
}

// stop refuses clients, and ends the joins under way.
func (g *Gateway) stop() {
	g.draining.Store(true)
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.hub.cancel()
}

// end waits until everything has ended. The connections of clients must be closed.
func (g *Gateway) end() {
	g.sockets.Shutdown(context.Background())
	g.events.Shutdown(context.Background())
	g.mercure.shutdown(context.Background())
	g.lot.Shutdown(context.Background())
	g.opening.Wait()
	g.polls.waiting.Wait()
	g.hooks.close()
	g.hub.close()
	g.sweeper.Wait()
	g.log.Flush()
}

// enter counts a request to subscribe. It reports whether the gateway is open; if so,
// g.opening.Done must follow.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.opening.Add(1)
	}
	return !g.closed
}

// Stats holds counters of a Gateway.
type Stats struct {
	Conns       int    // clients that are connected
	Topics      int    // topics and filters that this node subscribes to
	QueuedBytes int64  // bytes that wait for slow clients
	Published   uint64 // events that were acknowledged, or handed to NATS
	Events      uint64 // events that this node got for its topics
	Delivered   uint64 // events given to clients
	Dropped     uint64 // events that were dropped because of SlowDrop
	// TimedOut counts clients that were closed: Slow because they read too slowly, by WriteTimeout
	// or SlowClose, and Idle because they answered no ping of a WebSocket.
	TimedOut      metrics.TimedOut
	Panics        uint64 // panics of the connections' methods
	Resumed       uint64 // topics that were resumed with an id
	Gaps          uint64 // gaps that an event's predecessor has shown
	Repairs       uint64 // topics that an audit has found behind the stream
	Audits        uint64 // comparisons with the stream
	AuditFailures uint64 // those that failed
	Denied        uint64 // requests without a valid token, or for topics that it does not allow
	Refused       uint64 // requests beyond a limit, or that could not be served now
	Rejected      uint64 // requests that were malformed or too large
	Hooks         uint64 // requests to webhooks
	HookFailures  uint64 // those without a valid answer
	Strange       uint64 // messages of NATS that are not the stream's
	First, Last   uint64 // sequences of the stream, at the last audit
	Epoch         string
}

// Stats returns the current counters.
func (g *Gateway) Stats() Stats {
	c := &g.hub.count
	g.hub.mu.RLock()
	topics := len(g.hub.feeds) - g.hub.own
	g.hub.mu.RUnlock()
	seen, sockets, events := g.hub.seen.Load(), g.sockets.Stats(), g.events.Stats()
	mercure := g.mercure.stats()
	return Stats{
		Conns: int(c.clients.Load()), Topics: topics, QueuedBytes: sockets.QueuedBytes + events.QueuedBytes + mercure.QueuedBytes,
		Published: c.published.Load(), Events: c.events.Load(), Delivered: c.delivered.Load(), Dropped: sockets.Dropped + events.Dropped,
		TimedOut: metrics.TimedOut{Slow: sockets.TimedOut.Slow + events.TimedOut.Slow + mercure.TimedOut.Slow,
			Idle: sockets.TimedOut.Idle},
		Panics: sockets.Panics + events.Panics + mercure.Panics + g.lot.Stats().Panics, Resumed: c.resumed.Load(), Gaps: c.gaps.Load(),
		Repairs: c.repairs.Load(), Audits: c.audits.Load(), AuditFailures: c.auditFailures.Load(), Denied: c.denied.Load(),
		Refused: c.refused.Load(), Rejected: c.rejected.Load(),
		Hooks: c.hooks.Load(), HookFailures: c.hookFailures.Load(), Strange: c.strange.Load(),
		First: seen.first, Last: seen.last, Epoch: g.hub.epoch,
	}
}

// A Member is a server of NATS that has a replica of the stream, as its leader said at the last
// audit.
type Member struct {
	Name    string
	Leader  bool
	Current bool   // the replica has what the leader has
	Offline bool   // the leader cannot reach it
	Lag     uint64 // operations that the replica is behind
	// Active is the time since the leader has heard from the replica.
	Active time.Duration
}

// Members returns the servers that have replicas of the stream.
func (g *Gateway) Members() []Member { return slices.Clone(g.hub.seen.Load().members) }

// A Topic is a topic, or a filter with wildcards, that clients of this node have subscribed to.
type Topic struct {
	Filter  string
	Clients int
	Last    uint64 // sequence of the last event that was delivered; 0 for live topics
	Behind  uint64 // at most so many events are stored and not delivered yet
}

// Topics returns the topics with the most clients, at most n.
func (g *Gateway) Topics(n int) []Topic {
	topics := make([]Topic, 0, n)
	for _, f := range g.hub.all() {
		if isReserved(f.filter()) {
			continue
		}
		f.mu.Lock()
		topics = append(topics, Topic{f.filter(), len(f.members), f.floor, f.target - f.floor})
		f.mu.Unlock()
	}
	slices.SortFunc(topics, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Filter, b.Filter))
	})
	return topics[:min(n, len(topics))]
}
