package mercure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/mercure/selector"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A ask is what a request to subscribe has beside an ask.
type ask struct {
	topics   []string // the selectors that the client wants
	allowed  []string // the selectors of private updates that it may get
	payload  json.RawMessage
	last     string // the id of the last update that it has, or empty
	answered string // the id of the update before the first one that it gets
	bare     bool   // see mercureStream
}

// accept checks a request to subscribe, as Gateway.accept does.
func (m *Server) accept(w http.ResponseWriter, r *http.Request) (a access.Ask, ok bool) {
	m.prepare(w, r, m.access.Config.Origins)
	if !m.access.Admit(w, r) {
		return a, false
	}
	q, err := parseAsk(r)
	if err != nil {
		m.access.Reject(w, r, http.StatusBadRequest, err.Error())
		return a, false
	}
	g, ok := m.authorize(w, r)
	if !ok || !m.access.Introduce(w, r, &a, &g) {
		return a, false
	}
	q.allowed = g.Mercure.Subscribe
	if m.tracker != nil {
		q.payload = bytes.Clone(g.Mercure.Payload)
	}
	a.Transport, a.Extra, a.Wants = "sse", q, []hub.Want{{Filter: event.MercureTopic}}
	if f := m.access.Consult(r, &a, q.topics); f != nil {
		m.access.Refuse(w, r, f)
		return a, false
	}
	return a, true
}

func parseAsk(r *http.Request) (*ask, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query is malformed")
	}
	// The second name is that of older drafts, which the pages of older versions of symfony/mercure use.
	q := &ask{last: cmp.Or(query.Get("lastEventID"), query.Get(lastEventID)),
		bare: !mayBeEventSource(r)}
	if id := r.Header.Get(lastEventID); id != "" {
		q.last = id
	}
	if q.last != "" && checkID(q.last) != nil {
		return nil, fmt.Errorf("%s: %w", lastEventID, errID)
	}
	for _, topic := range query["topic"] {
		if _, err := selector.Parse(topic); err != nil {
			return nil, fmt.Errorf("topic: %w", err)
		}
		if !slices.Contains(q.topics, topic) {
			q.topics = append(q.topics, topic)
		}
	}
	switch {
	case len(q.topics) == 0:
		return nil, errors.New("no topic")
	case len(q.topics) > event.MaxTopics:
		return nil, fmt.Errorf("more than %d topics", event.MaxTopics)
	}
	return q, nil
}

// mayBeEventSource reports whether a client may be a browser's EventSource, which sends no header
// Authorization. User-Agent begins with Mozilla/ in all browsers, and in no client library known.
func mayBeEventSource(r *http.Request) bool {
	return r.Header.Get("Authorization") == "" && strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

var errID = fmt.Errorf("want UTF-8 of at most %d bytes without control characters",
	maxID)

func checkID(id string) error {
	if len(id) > maxID || selector.Check(id) != nil {
		return errID
	}
	return nil
}

// begin finds out where a client begins: after the update that it names, which may be one of an
// earlier stream of which this one was made. If that is not known, it gets all updates that are
// stored, so that it loses none of them.
func (m *Server) begin(ctx context.Context, a *access.Ask) (err error) {
	q, w, known := a.Extra.(*ask), &a.Wants[0], true
	switch id := q.last; {
	case id == "":
	case id == earliest:
		known = false
	case id[0] == '#':
		w.After, known, err = m.positionOf(ctx, id)
	default:
		w.After, known, err = m.find(ctx, id)
	}
	if err != nil {
		return err
	}
	if !known {
		w.After = event.Position{Epoch: event.Beginning}
	}
	missed, err := m.hub.Locate(ctx, a.Wants)
	if err != nil {
		return err
	}
	switch {
	case !known, w.After.Seq == 0:
		q.answered = earliest
	case missed == nil && q.last != "":
		q.answered = q.last
	default:
		q.answered = idOf(w.After)
	}
	return nil
}

// idOf is the id of the update at a position.
func idOf(at event.Position) string { return "#" + at.String() }

// positionOf parses an id that this gateway has made. It reports whether it is one of this stream,
// or of one that this one was made from.
func (m *Server) positionOf(ctx context.Context, id string) (at event.Position, known bool, err error) {
	all, err := event.ParsePositions(id[1:])
	if err != nil || len(all) != 1 || all[0].Epoch == event.Beginning || all[0].Epoch == "" || all[0].Others != nil {
		return at, false, nil
	}
	known, err = m.hub.Knows(ctx, all[0].Epoch)
	return all[0], known, err
}

var errFound = errors.New("found")

// find finds an update by the id that its publisher has chosen. A record with the id is stored
// before the update is, in the same stream, so the update is after it.
func (m *Server) find(ctx context.Context, id string) (at event.Position, found bool, err error) {
	for _, h := range m.hub.Generations(event.MercureTopic) {
		if at, found, err = m.findIn(ctx, h, id); err != nil || found {
			break
		}
	}
	return at, found, err
}

// findIn is find in one stream.
func (m *Server) findIn(ctx context.Context, h *stream.History, id string) (at event.Position, found bool, err error) {
	record, err := h.Last(ctx, event.MercureIDPrefix+hashOf(id))
	if err != nil || record == 0 {
		return at, false, err
	}
	end, err := h.Last(ctx, event.MercureTopic)
	if err != nil {
		return at, false, err
	}
	searched := 0
	_, err = h.Replay(ctx, m.hub.Epoch, event.MercureTopic, record, end, func(e *event.Event) error {
		if u, ok := parseUpdate(e); ok && u.ID == id {
			at, found = e.At, true
			return errFound
		}
		if searched++; searched == maxIDSearch {
			return errFound
		}
		return nil
	}, func(event.Span) {})
	if errors.Is(err, errFound) {
		err = nil
	}
	return at, found, err
}

// hashOf returns a word for an id.
func hashOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
