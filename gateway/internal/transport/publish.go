package transport

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// servePublish answers a POST. With one parameter topic the body is the event's data, and the header
// Idempotency-Key its key. With several it is published to each of them. Without one the body is a
// batch.
func (t *Server) servePublish(w http.ResponseWriter, r *http.Request) {
	g, ok := t.Access.AuthorizeWriter(w, r)
	if !ok {
		return
	}
	p := &posting{t: t, from: webhook.NewRequest("", "http", g.Subject), write: g.Write, user: g.Subject,
		client: t.Access.KeyOf(g.Subject, r.RemoteAddr)}
	key := r.Header.Get("Idempotency-Key")
	topics := r.URL.Query()["topic"]
	if len(topics) != 1 {
		if len(g.Write) == 0 { // before a long body is read
			t.Access.Refuse(w, r, &access.Denial{Status: http.StatusForbidden, Text: "not allowed to publish"})
			return
		}
		events, f := t.parsePublications(w, r, topics, key)
		if f != nil {
			t.Access.Refuse(w, r, f)
			return
		}
		p.publishAll(w, r, events)
		return
	}
	if f := p.permit(topics[0]); f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	data, f := access.ReadBody(w, r, int64(t.Access.Config.MaxMessage))
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	stored, f := t.Access.PublishFor(r.Context(), p.from, topics[0], data, key)
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if stored.ID == "" {
		w.WriteHeader(http.StatusAccepted)
	}
	w.Write(append(event.Encode(stored), '\n'))
}

const (
	maxBatch      = 1000    // events of a batch
	maxBatchBytes = 1 << 20 // of it, or those of the longest message of a WebSocket
)

// A publication is an event to publish.
type publication struct {
	Topic string `json:"topic"`
	Data  string `json:"data"`
	Key   string `json:"key"`
}

// parsePublications reads the events of a request for several topics, or of a batch: an array, or one
// object after the other, as in JSON lines. An event of a batch without a key has that of the request
// and its place.
func (t *Server) parsePublications(w http.ResponseWriter, r *http.Request, topics []string, key string) (
	events []publication, f *access.Denial) {
	if len(topics) > event.MaxTopics {
		return nil, malformed(fmt.Errorf("more than %d topics", event.MaxTopics))
	}
	longest := t.Access.Config.MaxMessage
	if len(topics) == 0 {
		longest = max(maxBatchBytes, 2*longest+maxHead)
	}
	body, f := access.ReadBody(w, r, int64(longest))
	if f != nil {
		return nil, f
	}
	for _, topic := range topics {
		events = append(events, publication{topic, string(body), key})
	}
	if len(topics) > 0 {
		return events, nil
	}
	body = bytes.TrimSpace(body)
	var err error
	if len(body) > 0 && body[0] == '[' {
		err = json.Unmarshal(body, &events)
	} else {
		events, err = parseLines(body)
	}
	switch {
	case err != nil:
		return nil, malformed(fmt.Errorf("no topic, and no batch: %w", err))
	case len(events) == 0:
		return nil, malformed(errors.New("no topic, and no batch"))
	case len(events) > maxBatch:
		return nil, malformed(fmt.Errorf("more than %d events", maxBatch))
	}
	for i := range events {
		if key != "" {
			events[i].Key = cmp.Or(events[i].Key, key+"."+strconv.Itoa(i))
		}
	}
	return events, nil
}

func parseLines(body []byte) (events []publication, err error) {
	for d := json.NewDecoder(bytes.NewReader(body)); len(events) <= maxBatch; {
		var p publication
		switch err := d.Decode(&p); err {
		case nil:
			events = append(events, p)
		case io.EOF:
			return events, nil
		default:
			return nil, err
		}
	}
	return events, nil
}

// A posting is a request to publish that was authorized.
type posting struct {
	t      *Server
	from   webhook.Request
	write  []string
	user   string
	client string // for the limits
}

func (p *posting) permit(topic string) *access.Denial {
	return p.t.Access.Permit(p.write, p.user, topic, p.client)
}

// A published is what has become of one of several events: a receipt, or why there is none.
type published struct {
	Topic string `json:"topic"`
	stream.Receipt
	Error *socketError `json:"error,omitempty"`
}

// publishAll publishes events, one after the other, and answers for each. The status is that of the
// first one that was refused, so that a client that looks at nothing else notices, and tries again.
// After one that may be published later the others are not tried: they would come before it.
func (p *posting) publishAll(w http.ResponseWriter, r *http.Request, events []publication) {
	results := make([]published, len(events))
	status, stored := 0, false
	var wait time.Duration
	var later *access.Denial
	for i, e := range events {
		one := &results[i]
		one.Topic = e.Topic
		f := later
		if f == nil {
			one.Receipt, f = p.publish(r.Context(), e)
		}
		if f == nil {
			stored = stored || one.ID != ""
			continue
		}
		if later == nil {
			p.t.Access.Count(f, r.RemoteAddr)
		}
		one.Error = &socketError{f.Status, f.Text, f.Wait.Milliseconds()}
		status, wait = cmp.Or(status, f.Status), max(wait, f.Wait)
		if f.Wait > 0 {
			later = f
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	switch {
	case status != 0:
		w.WriteHeader(status)
	case !stored:
		w.WriteHeader(http.StatusAccepted)
	}
	w.Write(append(event.Encode(map[string][]published{"results": results}), '\n'))
}

func (p *posting) publish(ctx context.Context, e publication) (stream.Receipt, *access.Denial) {
	if f := p.permit(e.Topic); f != nil {
		return stream.Receipt{}, f
	}
	return p.t.Access.PublishFor(ctx, p.from, e.Topic, []byte(e.Data), e.Key)
}
