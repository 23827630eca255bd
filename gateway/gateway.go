package gateway

import (
	"cmp"
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

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/websocket"
)

// A SlowPolicy says what happens to a client whose queue is full.
type SlowPolicy uint8

const (
	// SlowClose closes the connection. The client comes back with the last id that it has got, and misses nothing of durable
	// topics.
	SlowClose SlowPolicy = iota
	// SlowDrop drops events until there is room, and then tells the client that there is a gap.
	SlowDrop
)

// Config configures a [Gateway]. The zero value of each field but Conn has a meaning.
type Config struct {
	// Conn is a connection to NATS with JetStream, such as that of a [Node]. The Gateway does not close it.
	Conn *nats.Conn
	// Stream describes the stream of the durable topics. It is made if it does not exist.
	Stream StreamConfig
	// StoreError, if not nil, reports why no event can be stored now, such as [Node.StoreError]. Publish fails with that for
	// durable topics, instead of waiting for JetStream.
	StoreError func() error
	// Authorize says what the sender of a request may do. nil allows everything. It may be called concurrently.
	Authorize func(*http.Request) (Grant, error)
	// Origins are the origins, such as https://example.org, whose pages may use the gateway from browsers, besides the
	// gateway's own. "*" allows all, without cookies.
	Origins []string
	// PublishOrigins are the origins whose pages may publish, besides the gateway's own. nil is
	// Origins. "*" allows all that send a token in the header Authorization, or need none: a
	// request with a cookie publishes only from the gateway's own origin or a listed one.
	PublishOrigins []string
	// Hosts are the names under which clients reach the gateway, such as push.example.org; IP
	// addresses and localhost are always allowed. Requests for another host get the status 421. If
	// there are none, all names are allowed, except for a gateway without Authorize on a loopback
	// address: any page could use that one from a browser on the same machine, by a name of its own
	// that stands for the address. "*" allows all names.
	Hosts []string
	// MaxEvent bounds the bytes of an event, 0 is 256 KiB. MaxQueue bounds the bytes that wait for a client that reads too
	// slowly, 0 is 256 KiB. MaxAge bounds the time for which such a client takes nothing, and for which a
	// WebSocket does not answer a ping, 0 is 10 seconds. Slow says what happens at MaxQueue.
	MaxEvent, MaxQueue int
	MaxAge             time.Duration
	Slow               SlowPolicy
	// Heartbeat is the time after which a silent connection gets a few bytes, and after which a long poll is answered. 0 is
	// 25 seconds.
	Heartbeat time.Duration
	// Retry is the time after which clients come back, on average. 0 is 3 seconds. Each gets a value of its own around it.
	Retry time.Duration
	// MaxClients bounds the clients of this node, and MaxArrivals those that are accepted in a second. Others are answered
	// with the status 503. 0 is no limit.
	MaxClients, MaxArrivals int
	// Logger is nil for slog.Default. No query and no token is logged.
	Logger *slog.Logger
}

// A Gateway serves one node's clients. It is an http.Handler with the paths /events, /socket, /poll, /publish, /healthz and
// /readyz. A program serves it by a park.HTTPServer, so that connections between requests are parked too. Its methods may be
// called concurrently.
type Gateway struct {
	config   Config
	conn     *nats.Conn
	js       jetstream.JetStream
	hub      *hub
	lot      *park.Lot
	sockets  *websocket.Server
	mux      *http.ServeMux
	arrivals *rate.Limiter
	start    time.Time
	draining atomic.Bool
	failed   chan struct{}
	failOnce sync.Once
	sweeper  sync.WaitGroup
	slow     sync.Mutex // guards what the WebSockets were not told

	mu      sync.Mutex
	closed  bool
	opening sync.WaitGroup // requests to subscribe whose connections are not parked yet
}

// New returns a gateway. It makes the stream if there is none. ctx bounds that, which in a cluster takes until a majority of
// its members runs.
func New(ctx context.Context, config Config) (*Gateway, error) {
	if config.Conn == nil {
		return nil, errors.New("gateway: Config.Conn is nil")
	}
	if config.MaxEvent < 0 || config.MaxQueue < 0 || config.MaxAge < 0 || config.Heartbeat < 0 || config.Retry < 0 ||
		config.MaxClients < 0 || config.MaxArrivals < 0 || config.Slow > SlowDrop {
		return nil, errors.New("gateway: a field of Config is negative or unknown")
	}
	if s := config.Stream; s.Replicas < 0 || s.MaxAge < 0 || s.MaxBytes < 0 || s.Window < 0 {
		return nil, errors.New("gateway: a number of Config.Stream is negative")
	}
	orDefault(&config.MaxEvent, 256<<10)
	orDefault(&config.MaxQueue, 256<<10)
	orDefault(&config.MaxAge, 10*time.Second)
	orDefault(&config.Heartbeat, 25*time.Second)
	orDefault(&config.Retry, defaultRetry)
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.PublishOrigins == nil {
		config.PublishOrigins = config.Origins
	}
	if int64(config.MaxEvent) > config.Conn.MaxPayload()-maxHeaders {
		return nil, fmt.Errorf("gateway: MaxEvent %d: NATS takes at most %d bytes with headers", config.MaxEvent,
			config.Conn.MaxPayload())
	}
	js, err := jetstream.New(config.Conn)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	name, err := makeStream(ctx, js, config.Stream, config.MaxEvent, config.Logger)
	if err != nil {
		return nil, err
	}
	lot, err := park.New(park.Config{Logger: config.Logger, Name: "push"})
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: config, conn: config.Conn, js: js, lot: lot, start: time.Now(), failed: make(chan struct{})}
	if g.hub, err = newHub(ctx, config.Conn, name, config.MaxEvent, config.Logger); err != nil {
		lot.Close()
		return nil, err
	}
	g.hub.onReset = g.fail
	if config.MaxArrivals > 0 {
		g.arrivals = rate.NewLimiter(rate.Limit(config.MaxArrivals), config.MaxArrivals)
	}
	g.sockets = g.newSockets()
	g.mux = http.NewServeMux()
	g.mux.HandleFunc("GET /events", g.subscribe(g.serveEvents))
	g.mux.HandleFunc("GET /socket", g.subscribe(g.serveSocket))
	g.mux.HandleFunc("GET /poll", g.subscribe(g.servePoll))
	g.mux.HandleFunc("POST /publish", g.servePublish)
	for path, origins := range map[string][]string{
		"/events": config.Origins, "/poll": config.Origins, "/publish": config.PublishOrigins,
	} {
		g.mux.HandleFunc("OPTIONS "+path, func(w http.ResponseWriter, r *http.Request) {
			allowOrigin(w, r, origins)
			w.WriteHeader(http.StatusNoContent)
		})
	}
	g.mux.HandleFunc("GET /healthz", serveHealth)
	g.mux.HandleFunc("GET /readyz", g.serveReady)
	g.sweeper.Go(g.sweep)
	return g, nil
}

const defaultRetry = 3 * time.Second

func orDefault[N int | time.Duration](n *N, otherwise N) {
	if *n == 0 {
		*n = otherwise
	}
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if !probe && !g.config.allowsHost(r) {
		g.hub.count.refused.Add(1)
		http.Error(w, "this host is not served here", http.StatusMisdirectedRequest)
		return
	}
	g.mux.ServeHTTP(w, r)
}

// now is the time since the gateway's start.
func (g *Gateway) now() time.Duration { return time.Since(g.start) }

// Lot returns the lot of the connections of Server-Sent Events and long polling, for observation.
func (g *Gateway) Lot() *park.Lot { return g.lot }

// Sockets returns the server of the WebSockets, for observation.
func (g *Gateway) Sockets() *websocket.Server { return g.sockets }

// Changed tells the gateway that something has happened that may have lost events between nodes, such as the loss of a
// route. It compares its topics with the stream then, as it does every few seconds.
func (g *Gateway) Changed() { g.hub.auditNow() }

// Failed returns a channel that is closed if the stream was deleted, replaced, or has lost events that were acknowledged.
// The gateway cannot go on then: ids that clients have mean other events.
func (g *Gateway) Failed() <-chan struct{} { return g.failed }

func (g *Gateway) fail() { g.failOnce.Do(func() { close(g.failed) }) }

// Ready reports whether the gateway accepts clients: it is connected to NATS, and Shutdown was not called.
func (g *Gateway) Ready() bool { return !g.draining.Load() && g.conn.IsConnected() }

func (g *Gateway) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !g.Ready() {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ready\n"))
}

// Drain begins the end: the gateway is not ready from now on, refuses clients, and tells those that it has, one after the
// other over the given time, to come back elsewhere. It returns when all were told, or ctx is done. Shutdown must follow.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) {
	g.draining.Store(true)
	told := make(map[*subscriber]bool) // a client may have several topics
	var all []*subscriber
	g.hub.each(func(s *subscriber) {
		if !told[s] {
			told[s] = true
			all = append(all, s)
		}
	})
	began := time.Now()
	for i, s := range all {
		if wait := time.Until(began.Add(part(over, i, len(all)))); wait > time.Millisecond {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		s.to.end(errDrain)
	}
}

// part returns i n-ths of d. It divides first, because the product may be too long for a duration.
func part(d time.Duration, i, n int) time.Duration {
	return d / time.Duration(n) * time.Duration(i)
}

// Shutdown closes the connections of all clients, and waits until everything has ended. If ctx is done first, it returns its
// cause.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.draining.Store(true)
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.hub.cancel() // ends the joins under way
	err := g.sockets.Shutdown(ctx)
	if failed := g.lot.Shutdown(ctx); err == nil {
		err = failed
	}
	g.opening.Wait()
	g.hub.close()
	g.sweeper.Wait()
	return err
}

// enter counts a request to subscribe. It reports whether the gateway is open; if so, g.opening.Done must follow.
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
	Clients       int    // that are connected
	Topics        int    // topics and filters that this node subscribes to
	Queued        int    // bytes that wait for slow clients
	Published     uint64 // events that were acknowledged, or handed to NATS
	Events        uint64 // events that this node got for its topics
	Delivered     uint64 // events given to clients
	Dropped       uint64 // events that were dropped because of SlowDrop
	Slow          uint64 // clients that were closed because they read too slowly
	Silent        uint64 // WebSockets that were closed because they answered no ping
	Resumed       uint64 // topics that were resumed with an id
	Gaps          uint64 // gaps that an event's predecessor has shown
	Repairs       uint64 // topics that an audit has found behind the stream
	Audits        uint64 // comparisons with the stream
	AuditFailures uint64 // those that failed
	Denied        uint64 // requests without a valid token, or for topics that it does not allow
	Refused       uint64 // requests that were malformed, too large or too many, or could not be served now
	Strange       uint64 // messages of NATS that are not the stream's
	First, Last   uint64 // sequences of the stream, at the last audit
	Epoch         string
}

// Stats returns the current counters.
func (g *Gateway) Stats() Stats {
	c := &g.hub.count
	g.hub.mu.RLock()
	topics := len(g.hub.feeds)
	g.hub.mu.RUnlock()
	seen := g.hub.seen.Load()
	return Stats{
		Clients: int(c.clients.Load()), Topics: topics, Queued: int(c.queued.Load()) + g.sockets.Stats().Queued,
		Published: c.published.Load(), Events: c.events.Load(), Delivered: c.delivered.Load(), Dropped: c.dropped.Load(),
		Slow: c.slow.Load(), Silent: c.silent.Load(), Resumed: c.resumed.Load(), Gaps: c.gaps.Load(),
		Repairs: c.repairs.Load(), Audits: c.audits.Load(), AuditFailures: c.auditFailures.Load(), Denied: c.denied.Load(),
		Refused: c.refused.Load(), Strange: c.strange.Load(), First: seen.first, Last: seen.last, Epoch: g.hub.epoch,
	}
}

// A Member is a server of NATS that has a replica of the stream, as its leader said at the last audit.
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
		f.mu.Lock()
		topics = append(topics, Topic{f.filter, len(f.members), f.floor, f.target - f.floor})
		f.mu.Unlock()
	}
	slices.SortFunc(topics, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Filter, b.Filter))
	})
	return topics[:min(n, len(topics))]
}
