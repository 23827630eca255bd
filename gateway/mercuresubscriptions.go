package gateway

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
)

// A tracker publishes the subscriptions of this node's clients, and answers requests for those of
// all nodes. A nil one does nothing.
//
// A node is asked for its subscriptions for each request. There is no list of those of other nodes,
// so there is none that could be wrong after a node was killed.
type tracker struct {
	m *mercure

	mu      sync.Mutex
	ended   []*mercureStream // clients that have gone, which was not published yet
	working bool
	work    sync.WaitGroup
}

const (
	subscriptionsPath = mercurePath + "/subscriptions"
	mercureContext    = "https://mercure.rocks/"
	mercureAskSubject = "push.p.mercure" // a request; each node answers with its subscriptions
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

func newTracker(m *mercure) (*tracker, error) {
	t := &tracker{m: m}
	h := m.g.hub
	sub, err := h.conn.Subscribe(mercureAskSubject, func(q *nats.Msg) {
		all, full := t.local(string(q.Data))
		for len(all) > subscriptionChunk {
			answer := subscriptionsAnswer{Node: h.clients.node, All: all[:subscriptionChunk]}
			h.conn.Publish(q.Reply, encode(answer))
			all = all[subscriptionChunk:]
		}
		h.conn.Publish(q.Reply, encode(subscriptionsAnswer{h.clients.node, all, true, full}))
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: mercure: %w", err)
	}
	h.work.Go(func() {
		<-h.ctx.Done()
		sub.Unsubscribe()
	})
	return t, nil
}

// escape writes a value as a simple variable of a URI template.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// documents returns those of a client's subscriptions.
func (s *mercureStream) documents(active bool) (all []subscriptionDocument) {
	for _, w := range s.wanted {
		id := subscriptionsPath + "/" + escape(w.String()) + "/" + escape(s.name)
		all = append(all, subscriptionDocument{ID: id, Type: "Subscription", Topic: w.String(),
			Subscriber: s.name, Active: active, Payload: s.payload})
	}
	return all
}

// joined publishes the subscriptions of a new client.
func (t *tracker) joined(s *mercureStream) {
	if t != nil {
		t.publish(s, true)
	}
}

// left publishes that the subscriptions of a client have ended, soon.
func (t *tracker) left(s *mercureStream) {
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
			if !t.publish(s, false) && t.m.g.hub.ctx.Err() != nil {
				break // NATS may be gone
			}
		}
	}
}

// publish publishes the state of a client's subscriptions. It reports whether that was stored.
func (t *tracker) publish(s *mercureStream, active bool) bool {
	for _, d := range s.documents(active) {
		d.Context = mercureContext
		u := &update{Topics: []string{d.ID}, Private: true, data: encode(d)}
		if _, err := t.m.store(context.Background(), u, ""); err != nil {
			t.m.g.log.Log(slog.LevelWarn, "a subscription was not published", "err", err)
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
	h := t.m.g.hub
	h.mu.RLock()
	f := h.feeds[subjectOf(mercureTopic)]
	h.mu.RUnlock()
	if f == nil {
		return nil, false
	}
	f.mu.Lock()
	clients := make([]*mercureStream, 0, len(f.members))
	for _, m := range f.members {
		clients = append(clients, m.client.to.(*mercureStream))
	}
	f.mu.Unlock()
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
	err = askNodes(ctx, t.m.g.hub, mercureAskSubject, topic, func(a subscriptionsAnswer) (string, bool) {
		all, full = append(all, a.All...), full || a.Full
		return a.Node, a.Last
	})
	slices.SortFunc(all, func(x, y subscriptionDocument) int { return strings.Compare(x.ID, y.ID) })
	return all, full || len(all) > maxSubscriptions, err
}

func (t *tracker) route(mux *http.ServeMux) {
	if t == nil {
		return
	}
	for _, path := range []string{"", "/{topic}", "/{topic}/{subscriber}"} {
		mux.HandleFunc("GET "+subscriptionsPath+path, t.serve)
		mux.HandleFunc("OPTIONS "+subscriptionsPath+path, func(w http.ResponseWriter, r *http.Request) {
			allowOrigin(w, r, t.m.g.config.Origins)
			w.WriteHeader(http.StatusNoContent)
		})
	}
}

// serve answers a request for the subscriptions: all, those to a topic selector, or one.
func (t *tracker) serve(w http.ResponseWriter, r *http.Request) {
	m, g := t.m, t.m.g
	m.prepare(w, r, g.config.Origins)
	grant, ok := m.authorize(w, r)
	if !ok {
		return
	}
	here := r.URL.EscapedPath()
	if !matchesSelector(grant.Mercure.Subscribe, here) {
		g.refuse(w, r, notAllowed(here))
		return
	}
	ctx, done, ok := g.beginQuestion(w, r, &grant)
	if !ok {
		return
	}
	defer done()
	state, err := g.hub.history.state(ctx) // before the question, so that no change is lost
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	last := earliest
	if state.last > 0 {
		last = mercureID(position{state.epoch, state.last})
	}
	all, full, err := t.ask(ctx, r.PathValue("topic"))
	switch {
	case err != nil:
		g.unavailable(w, r, err)
		return
	case full:
		g.refuse(w, r, &denial{http.StatusServiceUnavailable,
			fmt.Sprintf("there are more than %d subscriptions", maxSubscriptions), time.Second})
		return
	}
	var answer any
	if name := r.PathValue("subscriber"); name != "" {
		i := slices.IndexFunc(all, func(d subscriptionDocument) bool { return d.Subscriber == name })
		if i < 0 {
			g.refuse(w, r, &denial{status: http.StatusNotFound, text: "no such subscription"})
			return
		}
		one := all[i]
		one.Context, one.Last = mercureContext, last
		answer = one
	} else {
		answer = struct {
			Context string                 `json:"@context"`
			ID      string                 `json:"id"`
			Type    string                 `json:"type"`
			Last    string                 `json:"lastEventID"`
			All     []subscriptionDocument `json:"subscriptions"`
		}{mercureContext, here, "Subscriptions", last, append([]subscriptionDocument{}, all...)}
	}
	w.Header().Set("Content-Type", "application/ld+json")
	w.Write(append(encode(answer), '\n'))
}
