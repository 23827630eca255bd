package order

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/transport"
)

// An order ends the connections of a client, or with a topic, its subscriptions to that. It is an
// event of controlTopic, which each node follows as a client does. So an order reaches a node once,
// also when the node was paused or could not be reached.
type order struct {
	User   string `json:"user,omitempty"`   // the subject of the connections
	Client string `json:"client,omitempty"` // the id of one
	Topic  string `json:"topic,omitempty"`
}

// Serve answers a POST to /disconnect or /unsubscribe, when the order is stored.
func (c *Orders) Serve(w http.ResponseWriter, r *http.Request) {
	g, ok := c.access.AuthorizeWriter(w, r)
	if !ok {
		return
	}
	if !g.Control {
		c.access.Refuse(w, r, &access.Denial{Status: http.StatusForbidden, Text: "not allowed"})
		return
	}
	query := r.URL.Query()
	o := order{query.Get("user"), query.Get("client"), query.Get("topic")}
	err := error(nil)
	switch {
	case o.User == "" && o.Client == "":
		err = errors.New("want a user or a client")
	case len(o.User) > access.MaxSubject || len(o.Client) > access.MaxSubject:
		err = access.ErrSubject
	case r.URL.Path == "/unsubscribe":
		err = event.CheckTopic(o.Topic, true)
	case o.Topic != "":
		err = errors.New("a topic is for /unsubscribe")
	}
	if err != nil {
		c.access.Reject(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if _, err := c.access.Publisher.Store(r.Context(), event.ControlTopic, event.Encode(o), ""); err != nil {
		c.access.Unavailable(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	w.Write([]byte("{}\n"))
}

// A recentOrder is an order that was carried out. It is for the clients with ids up to one, also
// for those of them that join later.
type recentOrder struct {
	order
	upTo uint64
	at   time.Time
}

// keepOrders is how long an order is remembered: longer than a client needs to join.
const keepOrders = 2 * access.JoinTimeout

// remember notes an order before it is carried out.
func (c *Orders) remember(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.recent = slices.DeleteFunc(c.recent, func(r recentOrder) bool { return now.Sub(r.at) > keepOrders })
	c.recent = append(c.recent, recentOrder{o, c.hub.Clients.Last.Load(), now})
}

// missed returns the orders that were carried out while a client that has its topics now joined.
func (c *Orders) missed(s *hub.Subscriber) (orders []order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recent {
		if s.ID != 0 && s.ID <= r.upTo {
			orders = append(orders, r.order)
		}
	}
	return orders
}

// Orders carries out the orders on this node. It is a subscriber of controlTopic.
type Orders struct {
	hub.Subscriber
	hub        *hub.Hub
	access     *access.Control
	transports *transport.Server

	mu     sync.Mutex
	recent []recentOrder // carried out in the last time, the oldest first
}

// New returns the orders of a gateway. Follow must be called, unless there can be none.
func New(access *access.Control, t *transport.Server) *Orders {
	c := &Orders{hub: access.Hub, access: access, transports: t}
	c.To = c
	c.hub.OnJoin = func(s *hub.Subscriber) {
		for _, o := range c.missed(s) {
			c.carryOut(o, s)
		}
	}
	return c
}

// Follow begins to carry out the orders that are stored from now on, until the hub is closed. work
// counts its goroutine.
func (c *Orders) Follow(ctx context.Context, work *sync.WaitGroup) error {
	wants := []hub.Want{{Filter: event.ControlTopic}}
	if _, err := c.hub.Locate(ctx, wants); err != nil {
		return err
	}
	work.Go(func() {
		ctx := c.hub.Ctx
		for c.hub.Join(ctx, &c.Subscriber, wants) != nil && ctx.Err() == nil {
			c.hub.Leave(&c.Subscriber)
			c.Topics = nil
			stream.Sleep(ctx, 100*time.Millisecond) // there may be no leader now
		}
		<-ctx.Done()
		c.hub.Leave(&c.Subscriber)
	})
	return nil
}

// Send implements sink.
func (c *Orders) Send(_ int, e *event.Event) bool {
	var o order
	if json.Unmarshal(e.Data, &o) != nil || o.User == "" && o.Client == "" {
		c.hub.Count.Strange.Add(1)
		return true
	}
	c.remember(o)
	c.hub.Clients.Each(func(s *hub.Subscriber) { c.carryOut(o, s) })
	return true
}

// carryOut carries an order out, if it is for a client.
func (c *Orders) carryOut(o order, s *hub.Subscriber) {
	switch {
	case o.User != "" && o.User != s.User, o.Client != "" && o.Client != c.hub.Clients.NameOf(s):
	case o.Topic == "":
		c.transports.End(s, access.ErrKicked)
	default:
		c.transports.Unsubscribe(s, o.Topic)
	}
}

// Gap implements sink. The node does not know which orders it has missed, so all clients must come
// back.
func (c *Orders) Gap(int, string, event.Span) {
	c.hub.Clients.Each(func(s *hub.Subscriber) { c.transports.End(s, access.ErrDrain) })
}

// Flush implements sink.
func (c *Orders) Flush(context.Context) error { return nil }
