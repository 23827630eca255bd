package access

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// A Config has the fields of gateway.Config that say who may do what.
type Config struct {
	Authorize                               func(*http.Request) (Grant, error)
	Origins, PublishOrigins, Hosts          []string
	MaxConns, MaxConnsPerUser               int
	Words                                   words
	AcceptRate                              Rate
	PublishRate, SubscribeRate, MessageRate Rate
	MaxMessage                              int
	Retry                                   time.Duration
	Webhooks                                webhook.Config
	Name                                    string
	Logger                                  *slog.Logger
	Now                                     func() time.Time // nil is time.Now; of the rates of each client
}

// A Control decides which requests are served, and counts and answers those that are not. Its methods
// may be called concurrently.
type Control struct {
	Config    Config
	Hub       *hub.Hub
	Publisher *stream.Publisher
	Hooks     *webhook.Hooks
	Log       Log
	arrivals  *rate.Limiter
	users     tally // the connections of each client
	// The limits of each client.
	Publishing, subscribing, Messages *limiter

	Clients                   atomic.Int64 // that are connected
	Refused, Rejected, Denied atomic.Uint64

	Draining atomic.Bool
	mu       sync.Mutex
	closed   bool
	Opening  sync.WaitGroup // requests whose handler has not returned yet
}

// New returns a control of the requests to a hub, and starts its webhooks.
func New(config Config, h *hub.Hub, p *stream.Publisher) *Control {
	c := &Control{Config: config, Hub: h, Publisher: p}
	c.Log.name, c.Log.logger = config.Name, config.Logger
	if r := config.AcceptRate; r.PerSecond > 0 {
		c.arrivals = rate.NewLimiter(rate.Limit(r.PerSecond), cmp.Or(r.Burst, r.PerSecond))
	}
	now := config.Now
	if now == nil {
		now = time.Now
	}
	c.Publishing, c.subscribing = newLimiter(config.PublishRate, now), newLimiter(config.SubscribeRate, now)
	c.Messages = newLimiter(config.MessageRate, now)
	c.Hooks = webhook.New(config.Webhooks, func(address string, err error) {
		c.Log.Log(slog.LevelWarn, "a webhook has failed", "address", address, "err", err)
	})
	return c
}

// The reasons for which a client is sent away.
var (
	ErrExpired = errors.New("gateway: the token has expired")
	ErrDrain   = errors.New("gateway: the node is being drained")
	ErrKicked  = errors.New("gateway: disconnected") // by an order
)

// enter counts a request. It reports whether the gateway is open; if so, c.Opening.Done must follow.
func (c *Control) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.Opening.Add(1)
	}
	return !c.closed
}

// Stop refuses requests from now on, and ends the joins under way.
func (c *Control) Stop() {
	c.Draining.Store(true)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Hub.Cancel()
}
