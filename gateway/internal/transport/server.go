package transport

import (
	"context"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// New returns a server. Route must follow.
func New(config Config, access *access.Control, p *presence.Presence) *Server {
	t := &Server{Config: config, Access: access, Hub: access.Hub, presence: p}
	t.Events, t.Sockets = t.NewEvents(), t.newSockets()
	return t
}

// Route says which method answers which request.
func (t *Server) Route(handle func(pattern string, f http.HandlerFunc)) {
	handle("GET /events", t.Subscribe(t.serveEvents))
	handle("POST /connection", t.serveChange)
	handle("GET "+socketPath, t.Subscribe(t.serveSocket))
	handle("CONNECT "+socketPath, t.Subscribe(t.serveSocket)) // of HTTP/2
	handle("GET /poll", t.Subscribe(t.servePoll))
	handle("POST /publish", t.servePublish)
}

// Sweep closes clients whose tokens have expired, until the hub is closed.
func (t *Server) Sweep() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			now := time.Now().Unix()
			t.Hub.Clients.Each(func(s *hub.Subscriber) {
				if s.HasExpired(now) {
					t.End(s, access.ErrExpired)
				}
			})
		case <-t.Hub.Ctx.Done():
			return
		}
	}
}

// Drain sends the clients away, one after the other over the given time. It returns when all were
// told, or ctx is done.
func (t *Server) Drain(ctx context.Context, over time.Duration) {
	var all []*hub.Subscriber
	t.Hub.Clients.Each(func(s *hub.Subscriber) { all = append(all, s) })
	began := time.Now()
	for i, s := range all {
		wait := time.Until(began.Add(part(over, i, len(all))))
		if wait > time.Millisecond && !stream.Sleep(ctx, wait) {
			return
		}
		t.End(s, access.ErrDrain)
	}
}

// SendAway sends the clients of durable topics away, because no event of these comes to this node.
func (t *Server) SendAway() {
	t.Hub.Clients.Each(func(s *hub.Subscriber) {
		if s.Durable() {
			t.End(s, access.ErrDrain)
		}
	})
}

// part returns i n-ths of d. It divides first, because the product may be too long for a duration.
func part(d time.Duration, i, n int) time.Duration {
	return d / time.Duration(n) * time.Duration(i)
}
