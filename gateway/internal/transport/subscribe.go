package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
)

// names are those that webhooks have for the ways to subscribe, by path.
var names = map[string]string{"/events": "sse", socketPath: "websocket", "/poll": "poll"}

// Subscribe returns a handler of requests to subscribe.
func (t *Server) Subscribe(serve func(context.Context, http.ResponseWriter, *http.Request, access.Ask)) http.HandlerFunc {
	return t.Access.Subscribe(t.accept, t.begin, serve)
}

// begin finds out where each topic of a request begins.
func (t *Server) begin(ctx context.Context, a *access.Ask) (err error) {
	a.Gap, err = t.Hub.Locate(ctx, a.Wants)
	return err
}

// accept checks a request to subscribe. If it may not, accept answers it and returns false.
//
// The parameter topic may be repeated. The parameter after is the id of the last event that the client has seen: one for all
// topics, or one for each topic, in the same order. The header Last-Event-ID, which browsers send, counts before it. An id
// of Server-Sent Events has the positions of all topics. The parameter last is the number of stored
// events with which a topic without an id begins.
func (t *Server) accept(w http.ResponseWriter, r *http.Request) (a access.Ask, ok bool) {
	access.AllowOrigin(w, r, t.Access.Config.Origins)
	if !t.Access.Admit(w, r) {
		return a, false
	}
	a, err := t.parseAsk(r)
	if err != nil {
		t.Access.Reject(w, r, http.StatusBadRequest, err.Error())
		return a, false
	}
	g, ok := t.Access.Authorize(w, r)
	if !ok {
		return a, false
	}
	if !t.Access.Introduce(w, r, &a, &g) {
		return a, false
	}
	rights := access.Rights{Read: g.Read, Write: g.Write, Presence: g.Presence}
	if r.URL.Path == socketPath {
		a.Rights, a.Silent = t.Access.RightsOf(&g), !t.Access.Config.MayPublish(r)
	}
	filters := make([]string, len(a.Wants))
	for i, want := range a.Wants {
		filters[i] = want.Filter
		if !t.Access.MayRead(&rights, g.Subject, want.Filter) {
			t.Access.Refuse(w, r, access.NotAllowed(want.Filter))
			return a, false
		}
	}
	if f := t.Access.Consult(r, &a, filters); f != nil {
		t.Access.Refuse(w, r, f)
		return a, false
	}
	if r.URL.Path == "/events" && a.Form == event.FormEnvelope && a.User != "" && a.User == g.Subject {
		w.Header().Set(access.ExpiresHeader, strconv.FormatInt(expiresIn(a.Expires), 10)) // it may be changed
	}
	return a, true
}

// parseAsk parses a request to subscribe.
func (t *Server) parseAsk(r *http.Request) (a access.Ask, err error) {
	a.Transport = names[r.URL.Path]
	query := r.URL.Query()
	topics, after := query["topic"], query["after"]
	id := r.Header.Get("Last-Event-ID")
	if id != "" {
		after = []string{id}
	}
	switch {
	case len(topics) == 0 && r.URL.Path != socketPath: // a WebSocket may be there for publishing alone
		return a, errors.New("no topic")
	case len(topics) > event.MaxTopics:
		return a, fmt.Errorf("more than %d topics", event.MaxTopics)
	}
	positions, err := parseAfter(after, len(topics))
	if err != nil && id != "" && r.URL.Path == "/events" && !strings.HasPrefix(id, t.Hub.Epoch+"-") {
		// A browser keeps the id that it has got from the server before, and ends for good at a 400.
		positions, err = []event.Position{{Epoch: event.Foreign}}, nil
	}
	if err != nil {
		return a, err
	}
	last := 0
	if n := query.Get("last"); n != "" {
		if last, err = strconv.Atoi(n); err != nil || last < 1 || last > maxLast/max(len(topics), 1) {
			return a, fmt.Errorf("last: want a number from 1 to %d, divided by the topics", maxLast)
		}
		a.Stored = true
	}
	for i, topic := range topics {
		if err := t.checkWanted(topic, r.URL.Path != "/poll"); err != nil {
			return a, err
		}
		p := event.Position{}
		if len(positions) > 0 {
			p = positions[i%len(positions)]
		}
		if slices.ContainsFunc(a.Wants, func(w hub.Want) bool { return w.Filter == topic }) {
			return a, fmt.Errorf("topic %q: twice", topic)
		}
		// A client must not keep its request in memory.
		fresh := !t.Access.HasHistory(topic)
		if fresh && (last > 0 || p.Epoch == event.Beginning) {
			return a, noHistory(topic)
		}
		a.Wants = append(a.Wants, hub.Want{Filter: strings.Clone(topic), After: p, Last: last, Fresh: fresh})
	}
	switch f := query.Get("format"); f {
	case "", "text":
	case "json":
		a.Form = event.FormEnvelope
	default:
		return a, errors.New("format: want text or json")
	}
	return a, nil
}

func noHistory(topic string) error { return fmt.Errorf("topic %q: no history", topic) }

// checkWanted reports what is wrong with a topic that a client subscribes to. stays says that it does
// not poll.
func (t *Server) checkWanted(topic string, stays bool) error {
	of, ok := event.PresenceOf(topic)
	switch {
	case !ok:
		return event.CheckTopic(topic, true)
	case !stays:
		return fmt.Errorf("topic %q: not by long polling", topic)
	}
	return t.presence.Check(of)
}

// maxLast bounds the stored events with which the topics of a request begin, together.
const maxLast = 1000

// parseAfter parses the ids of a request for some topics: none, one for all, or one for each.
func parseAfter(after []string, topics int) (positions []event.Position, err error) {
	for _, id := range after {
		p, err := event.ParsePositions(id)
		if err != nil {
			return nil, err
		}
		if len(p) > 1 && len(after) > 1 {
			return nil, event.ErrID
		}
		positions = append(positions, p...)
	}
	if len(positions) > 1 && len(positions) != topics {
		return nil, errors.New("after: want one, or one for each topic")
	}
	return positions, nil
}
