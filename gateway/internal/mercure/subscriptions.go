package mercure

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/presence"
)

// A tracker publishes the subscriptions of this node's clients, and answers requests for those of
// all nodes. A nil one does nothing.
//
// A node is asked for its subscriptions for each request. There is no list of those of other nodes,
// so there is none that could be wrong after a node was killed.
type tracker struct {
	m *Server

	mu      sync.Mutex
	ended   []*client // clients that have gone, which was not published yet
	working bool
	work    sync.WaitGroup
}

const (
	subscriptionsPath = Path + "/subscriptions"
	ldContext         = "https://mercure.rocks/"
	askSubject        = "push.p.mercure" // a request; each node answers with its subscriptions
	maxSubscriptions  = 10_000           // of one answer
	subscriptionChunk = 100              // of one message between nodes
)

// A subscription document is what others get of a subscription.
type subscriptionDocument struct {
	Context    string          `json:"@context,omitempty"`
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Topic      string          `json:"topic"`
	Subscriber string          `json:"subscriber"`
	Active     bool            `json:"active"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	Last       string          `json:"lastEventID,omitempty"`
}

// A subscriptionsAnswer is a part of the subscriptions of a node. The last part says so.
type subscriptionsAnswer struct {
	Node string                 `json:"node"`
	All  []subscriptionDocument `json:"all"`
	Last bool                   `json:"last"`
	Full bool                   `json:"full"` // there are more than maxSubscriptions
}

func newTracker(m *Server) (*tracker, error) {
	t := &tracker{m: m}
	h := m.hub
	sub, err := h.Conn.Subscribe(askSubject, func(q *nats.Msg) {
		all, full := t.local(string(q.Data))
		for len(all) > subscriptionChunk {
			answer := subscriptionsAnswer{Node: h.Clients.Node, All: all[:subscriptionChunk]}
			h.Conn.Publish(q.Reply, event.Encode(answer))
			all = all[subscriptionChunk:]
		}
		h.Conn.Publish(q.Reply, event.Encode(subscriptionsAnswer{h.Clients.Node, all, true, full}))
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: mercure: %w", err)
	}
	h.Work.Go(func() {
		<-h.Ctx.Done()
		sub.Unsubscribe()
	})
	return t, nil
}

// escape writes a value as a simple variable of a URI template.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// documents returns those of a client's subscriptions.
func (s *client) documents(active bool) (all []subscriptionDocument) {
	for _, w := range s.wanted {
		id := subscriptionsPath + "/" + escape(w.String()) + "/" + escape(s.name)
		all = append(all, subscriptionDocument{ID: id, Type: "Subscription", Topic: w.String(),
			Subscriber: s.name, Active: active, Payload: s.payload})
	}
	return all
}

// joined publishes the subscriptions of a new client.
func (t *tracker) joined(s *client) {
	if t != nil {
		t.publish(s, true)
	}
}

// left publishes that the subscriptions of a client have ended, soon.
func (t *tracker) left(s *client) {
	if t == nil || !s.joined.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, s)
	if !t.working {
		t.working = true
		t.work.Go(t.run)
	}
}

// run publishes the ends of subscriptions until there are no more.
func (t *tracker) run() {
	for {
		t.mu.Lock()
		all := t.ended
		t.ended = nil
		if len(all) == 0 {
			t.working = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		for _, s := range all {
			if !t.publish(s, false) && t.m.hub.Ctx.Err() != nil {
				break // NATS may be gone
			}
		}
	}
}

// publish publishes the state of a client's subscriptions. It reports whether that was stored.
func (t *tracker) publish(s *client, active bool) bool {
	for _, d := range s.documents(active) {
		d.Context = ldContext
		u := &update{Topics: []string{d.ID}, Private: true, data: event.Encode(d)}
		if _, err := t.m.store(context.Background(), u, ""); err != nil {
			t.m.access.Log.Log(slog.LevelWarn, "a subscription was not published", "err", err)
			return false
		}
	}
	return true
}

// wait waits until the ends of subscriptions were published, or ctx is done.
func (t *tracker) wait(ctx context.Context) {
	if t == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.work.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// local returns the subscriptions of this node's clients to a topic selector, or all of them if it
// is empty.
func (t *tracker) local(topic string) (all []subscriptionDocument, full bool) {
	f := t.m.hub.Feed(event.MercureTopic)
	if f == nil {
		return nil, false
	}
	var clients []*client
	f.Each(func(s *hub.Subscriber, _ bool) bool {
		clients = append(clients, s.To.(*client))
		return true
	})
	for _, s := range clients {
		for _, d := range s.documents(true) {
			if topic != "" && d.Topic != topic {
				continue
			}
			if len(all) == maxSubscriptions {
				return all, true
			}
			all = append(all, d)
		}
	}
	return all, false
}

// ask asks all nodes for their subscriptions. A node that does not answer has none.
func (t *tracker) ask(ctx context.Context, topic string) (
	all []subscriptionDocument, full bool, err error) {
	err = presence.AskNodes(ctx, t.m.presence, askSubject, topic, func(a subscriptionsAnswer) (string, bool) {
		all, full = append(all, a.All...), full || a.Full
		return a.Node, a.Last
	})
	slices.SortFunc(all, func(x, y subscriptionDocument) int { return strings.Compare(x.ID, y.ID) })
	return all, full || len(all) > maxSubscriptions, err
}

func (t *tracker) route(handle func(pattern string, f http.HandlerFunc)) {
	if t == nil {
		return
	}
	for _, path := range []string{"", "/{topic}", "/{topic}/{subscriber}"} {
		handle("GET "+subscriptionsPath+path, t.serve)
		handle("OPTIONS "+subscriptionsPath+path, func(w http.ResponseWriter, r *http.Request) {
			access.AllowOrigin(w, r, t.m.access.Config.Origins)
			w.WriteHeader(http.StatusNoContent)
		})
	}
}

// serve answers a request for the subscriptions: all, those to a topic selector, or one.
func (t *tracker) serve(w http.ResponseWriter, r *http.Request) {
	m := t.m
	m.prepare(w, r, m.access.Config.Origins)
	g, ok := m.authorize(w, r)
	if !ok {
		return
	}
	here := r.URL.EscapedPath()
	if !matchesSelector(g.Mercure.Subscribe, here) {
		m.access.Refuse(w, r, access.NotAllowed(here))
		return
	}
	ctx, done, ok := m.access.BeginQuestion(w, r, &g)
	if !ok {
		return
	}
	defer done()
	state, err := m.hub.History.State(ctx) // before the question, so that no change is lost
	if err != nil {
		m.access.Unavailable(w, r, err)
		return
	}
	last := earliest
	if state.Last > 0 {
		last = idOf(event.Position{Epoch: state.Epoch, Seq: state.Last})
	}
	all, full, err := t.ask(ctx, r.PathValue("topic"))
	switch {
	case err != nil:
		m.access.Unavailable(w, r, err)
		return
	case full:
		m.access.Refuse(w, r, &access.Denial{Status: http.StatusServiceUnavailable,
			Text: fmt.Sprintf("there are more than %d subscriptions", maxSubscriptions), Wait: time.Second})
		return
	}
	var answer any
	if name := r.PathValue("subscriber"); name != "" {
		i := slices.IndexFunc(all, func(d subscriptionDocument) bool { return d.Subscriber == name })
		if i < 0 {
			m.access.Refuse(w, r, &access.Denial{Status: http.StatusNotFound, Text: "no such subscription"})
			return
		}
		one := all[i]
		one.Context, one.Last = ldContext, last
		answer = one
	} else {
		answer = struct {
			Context string                 `json:"@context"`
			ID      string                 `json:"id"`
			Type    string                 `json:"type"`
			Last    string                 `json:"lastEventID"`
			All     []subscriptionDocument `json:"subscriptions"`
		}{ldContext, here, "Subscriptions", last, append([]subscriptionDocument{}, all...)}
	}
	w.Header().Set("Content-Type", "application/ld+json")
	w.Write(append(event.Encode(answer), '\n'))
}
