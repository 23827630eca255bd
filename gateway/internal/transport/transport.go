package transport

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// A Config has the fields of gateway.Config that say how clients are served.
type Config struct {
	MaxQueued                      int
	SlowPolicy                     stream.SlowPolicy
	Compression, CompressMin       int
	WriteTimeout, Heartbeat, Retry time.Duration
	Name                           string
	Logger                         *slog.Logger
	Lot                            *park.Lot // of Server-Sent Events
}

// A Client is the sink of a client with an id.
type Client interface {
	hub.Sink
	End(t *Server, reason error)           // ends the client, because of ErrDrain, ErrExpired or ErrKicked
	Unsubscribed(t *Server, filter string) // the client gets no further event of the topic
}

// A queue is the connection of a client for which bytes may wait.
type queue interface {
	queued() int
	way() string // as webhooks name it
}

// A Slow is a client for which bytes wait, as gateway.SlowClient is.
type Slow struct {
	Client, User, Transport string
	Queued                  int
}

// Slowest returns the clients for which the most bytes wait, at most n.
func (t *Server) Slowest(n int) (all []Slow) {
	if t.Sockets.Stats().QueuedBytes+t.Events.Stats().QueuedBytes == 0 {
		return nil // no client need be looked at
	}
	t.Hub.Clients.Each(func(s *hub.Subscriber) {
		if q, ok := s.To.(queue); ok {
			if bytes := q.queued(); bytes > 0 {
				all = append(all, Slow{t.Hub.Clients.NameOf(s), s.User, q.way(), bytes})
			}
		}
	})
	slices.SortFunc(all, func(a, b Slow) int { return cmp.Or(b.Queued-a.Queued, cmp.Compare(a.Client, b.Client)) })
	return all[:min(n, len(all))]
}

// A Server serves the three ways to subscribe, and the clients that do.
type Server struct {
	Config    Config
	Access    *access.Control
	Hub       *hub.Hub
	presence  *presence.Presence
	Events    *sse.Server
	Sockets   *websocket.Server
	Polls     pollSet
	additions additionSet
	slow      sync.Mutex // guards what the WebSockets were not told
}

// End ends a client, because of ErrDrain, ErrExpired or ErrKicked.
func (t *Server) End(s *hub.Subscriber, reason error) { s.To.(Client).End(t, reason) }

// left ends a client whose connection is closed.
func (t *Server) left(s *hub.Subscriber, transport string) {
	t.Access.Left(s, transport)
	t.prune(s)
}

// Unsubscribe ends a client's subscription to a topic, if it has it, and tells it.
func (t *Server) Unsubscribe(s *hub.Subscriber, filter string) {
	for i := range s.Topics {
		if s.Topics[i].Filter() == filter && t.Hub.Unsubscribe(s, i) {
			s.To.(Client).Unsubscribed(t, filter)
		}
	}
}
