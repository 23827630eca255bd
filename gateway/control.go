package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// clientHeader is the header of an answer of Server-Sent Events that has the id of the connection.
const clientHeader = "Push-Client"

// An order ends the connections of a client, or with a topic, its subscriptions to that. It is an
// event of controlTopic, which each node follows as a client does. So an order reaches a node once,
// also when the node was paused or could not be reached.
type order struct {
	User   string `json:"user,omitempty"`   // the subject of the connections
	Client string `json:"client,omitempty"` // the id of one
	Topic  string `json:"topic,omitempty"`
}

// unsubscribedMessage tells a client that it gets no further events of a topic.
type unsubscribedMessage struct {
	Unsubscribed string `json:"unsubscribed"`
}

// errKicked ends a client that was disconnected by an order.
var errKicked = errors.New("gateway: disconnected")

// serveControl answers a POST to /disconnect or /unsubscribe, when the order is stored.
func (g *Gateway) serveControl(w http.ResponseWriter, r *http.Request) {
	grant, ok := g.authorizeWriter(w, r)
	if !ok {
		return
	}
	if !grant.Control {
		g.refuse(w, r, &denial{status: http.StatusForbidden, text: "not allowed"})
		return
	}
	query := r.URL.Query()
	o := order{query.Get("user"), query.Get("client"), query.Get("topic")}
	err := error(nil)
	switch {
	case o.User == "" && o.Client == "":
		err = errors.New("want a user or a client")
	case len(o.User) > maxSubject || len(o.Client) > maxSubject:
		err = errSubject
	case r.URL.Path == "/unsubscribe":
		err = checkTopic(o.Topic, true)
	case o.Topic != "":
		err = errors.New("a topic is for /unsubscribe")
	}
	if err != nil {
		g.reject(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if _, err := g.store(r.Context(), controlTopic, encode(o), ""); err != nil {
		g.unavailable(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	w.Write([]byte("{}\n"))
}

// A controller carries out the orders on this node.
type controller struct {
	subscriber
	g *Gateway
}

// followOrders begins to carry out the orders that are stored from now on.
func (g *Gateway) followOrders(ctx context.Context) error {
	wants := []want{{filter: controlTopic}}
	if _, err := g.hub.locate(ctx, wants); err != nil {
		return err
	}
	f := &controller{g: g}
	f.to = f
	g.sweeper.Go(func() {
		ctx := g.hub.ctx
		for g.hub.join(ctx, &f.subscriber, wants) != nil && ctx.Err() == nil {
			g.hub.leave(&f.subscriber)
			f.topics = nil
			sleep(ctx, 100*time.Millisecond) // there may be no leader now
		}
		<-ctx.Done()
		g.hub.leave(&f.subscriber)
	})
	return nil
}

// send implements sink.
func (f *controller) send(_ int, e *event) {
	var o order
	if json.Unmarshal(e.data, &o) != nil || o.User == "" && o.Client == "" {
		f.g.hub.count.strange.Add(1)
		return
	}
	f.g.hub.clients.remember(o)
	f.g.hub.clients.each(func(s *subscriber) { f.g.carryOut(o, s) })
}

// carryOut carries an order out, if it is for a client.
func (g *Gateway) carryOut(o order, s *subscriber) {
	switch {
	case o.User != "" && o.User != s.user, o.Client != "" && o.Client != g.hub.clients.name(s.id):
	case o.Topic == "":
		s.to.end(g, errKicked)
	default:
		s.unsubscribe(g, o.Topic)
	}
}

// unsubscribe ends a client's subscription to a topic, if it has it.
func (s *subscriber) unsubscribe(g *Gateway, filter string) {
	for i := range s.topics {
		f := s.topics[i].feed
		if f.filter() != filter {
			continue
		}
		first := f.expel(s, i)
		g.hub.tell(s, i)
		if first {
			s.to.unsubscribed(g, i)
		}
	}
}

// gap implements sink. The node does not know which orders it has missed, so all clients must come
// back.
func (f *controller) gap(int, string, span) {
	f.g.hub.clients.each(func(s *subscriber) { s.to.end(f.g, errDrain) })
}

// flush implements sink.
func (f *controller) flush(context.Context) error { return nil }

// end implements sink.
func (f *controller) end(*Gateway, error) {}

// unsubscribed implements sink.
func (f *controller) unsubscribed(*Gateway, int) {}
