package transport

import (
	"log/slog"
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
