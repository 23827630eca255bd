package mercure

import (
	"context"
	"net/http"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/gateway/internal/transport"
	"github.com/socknotify/socknotify/sse"
)

// New returns a server of Mercure's protocol. p asks the nodes for their subscriptions.
func New(config Config, t *transport.Server, p *presence.Presence) (*Server, error) {
	m := &Server{config: config, access: t.Access, hub: t.Hub, publisher: t.Access.Publisher,
		presence: p, transports: t, selectors: make(map[string]*watched)}
	m.events = t.NewEvents()
	m.events.OnOpen = m.open
	m.events.OnHeartbeat = func(c *sse.Conn) { c.Value.(*client).heartbeat() }
	m.events.OnClose = func(c *sse.Conn, _ error) {
		s := c.Value.(*client)
		m.access.Left(&s.Subscriber, "sse")
		m.tracker.left(s)
		m.release(s.wanted)
		m.release(s.allowed)
	}
	// The first block has the time to come back, and nothing that is dropped could be told.
	m.events.Retry, m.events.SlowPolicy = -1, stream.SlowClose
	m.hub.Own(event.MercureTopic, func(*hub.Feed) hub.Special { return updates{} })
	if config.Subscriptions {
		var err error
		if m.tracker, err = newTracker(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Server) Shutdown(ctx context.Context) error {
	if m == nil {
		return nil
	}
	err := m.events.Shutdown(ctx)
	m.tracker.wait(ctx)
	return err
}

func (m *Server) Close() {
	if m != nil {
		m.events.Close()
	}
}

func (m *Server) Stats() (s sse.Stats) {
	if m != nil {
		s = m.events.Stats()
	}
	return s
}

// Route says which method answers which request.
func (m *Server) Route(handle func(pattern string, f http.HandlerFunc)) {
	handle("GET "+Path, m.access.Subscribe(m.accept, m.begin, m.serve))
	handle("POST "+Path, m.servePublish)
	handle("OPTIONS "+Path, func(w http.ResponseWriter, r *http.Request) {
		origins := m.access.Config.Origins
		if r.Header.Get("Access-Control-Request-Method") == http.MethodPost {
			origins = m.access.Config.PublishOrigins
		}
		access.AllowOrigin(w, r, origins)
		w.WriteHeader(http.StatusNoContent)
	})
	m.tracker.route(handle)
}
