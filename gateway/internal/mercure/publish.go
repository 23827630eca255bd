package mercure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/mercure/selector"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

const (
	formFactor = 3       // bytes of a form for one of its data, at most
	formRoom   = 8 << 10 // bytes of a form beside the data
	maxRetry   = 24 * 60 * 60 * 1000
)

// servePublish answers a POST with a form: topic (one or more), and data, private, id, type and
// retry. As with /publish, the header Idempotency-Key is its key.
func (m *Server) servePublish(w http.ResponseWriter, r *http.Request) {
	m.prepare(w, r, m.access.Config.PublishOrigins)
	if !m.access.Config.MayPublish(r) {
		m.access.Refuse(w, r, &access.Denial{Status: http.StatusForbidden, Text: "this origin may not publish"})
		return
	}
	g, ok := m.authorize(w, r)
	if !ok {
		return
	}
	id, f := m.publish(w, r, &g)
	if f != nil {
		m.access.Refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // the publisher may have chosen the id
	w.Write([]byte(id))
}

// publish stores the update of a request, and returns its id.
func (m *Server) publish(w http.ResponseWriter, r *http.Request, g *access.Grant) (string, *access.Denial) {
	malformed := func(err error) (string, *access.Denial) {
		return "", &access.Denial{Status: http.StatusBadRequest, Text: err.Error()}
	}
	if len(g.Mercure.Publish) == 0 {
		return "", &access.Denial{Status: http.StatusForbidden, Text: "not allowed to publish"}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return "", &access.Denial{Status: http.StatusUnsupportedMediaType,
			Text: "want application/x-www-form-urlencoded"}
	}
	if wait := m.access.Publishing.Take(m.access.KeyOf(g.Subject, r.RemoteAddr)); wait > 0 {
		return "", &access.Denial{Status: http.StatusTooManyRequests, Text: access.ErrRate.Error(), Wait: wait}
	}
	body, f := access.ReadBody(w, r, int64(m.access.Config.MaxMessage)*formFactor+formRoom)
	if f != nil {
		return "", f
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return malformed(errors.New("the form is malformed"))
	}
	u, err := parseForm(form)
	if err != nil {
		return malformed(err)
	}
	for _, topic := range u.Topics {
		if !matchesSelector(g.Mercure.Publish, topic) {
			return "", access.NotAllowed(topic)
		}
	}
	from := webhook.NewRequest("", "http", g.Subject)
	for _, topic := range u.Topics {
		if f := m.access.AskPublish(r.Context(), from, topic, string(u.data)); f != nil {
			return "", f
		}
	}
	id, err := m.store(r.Context(), u, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return "", access.DenialOf(err)
	}
	return id, nil
}

func matchesSelector(selectors []string, topic string) bool {
	return slices.ContainsFunc(selectors, func(text string) bool {
		s, err := selector.Parse(text)
		return err == nil && s.Matches(topic)
	})
}

// parseForm checks the fields of a form.
func parseForm(form url.Values) (*update, error) {
	u := &update{Topics: form["topic"], ID: form.Get("id"), Type: form.Get("type"),
		Private: form.Has("private"), data: []byte(form.Get("data"))}
	for _, topic := range u.Topics {
		if err := checkTopic(topic); err != nil {
			return nil, err
		}
	}
	switch {
	case len(u.Topics) == 0:
		return nil, errors.New("no topic")
	case len(u.Topics) > event.MaxTopics:
		return nil, fmt.Errorf("more than %d topics", event.MaxTopics)
	case !utf8.Valid(u.data):
		return nil, errors.New("data: not UTF-8")
	case u.ID != "" && checkID(u.ID) != nil:
		return nil, fmt.Errorf("id: %w", errID)
	case strings.HasPrefix(u.ID, "#"), u.ID == earliest:
		return nil, errors.New("id: begins with #, or is earliest")
	case len(u.Type) > event.MaxTopic || !utf8.ValidString(u.Type) ||
		strings.ContainsFunc(u.Type, unicode.IsControl):
		return nil, fmt.Errorf("type: want UTF-8 of at most %d bytes without control characters",
			event.MaxTopic)
	}
	if text := form.Get("retry"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n > maxRetry {
			return nil, fmt.Errorf("retry: want milliseconds, at most %d", maxRetry)
		}
		u.Retry = int64(n)
	}
	return u, nil
}

// checkTopic reports what is wrong with a topic that is published to. Those below the path
// of Mercure are the gateway's own: otherwise publishers could forge subscriptions.
func checkTopic(topic string) error {
	if err := selector.Check(topic); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	u, err := url.Parse(strings.ReplaceAll(strings.TrimSpace(topic), `\`, "/"))
	own := topic == "*"
	if err != nil {
		own = own || strings.Contains(strings.ToLower(topic), Path)
	} else {
		clean := path.Clean("/" + u.Path)
		own = own || clean == Path || strings.HasPrefix(clean, Path+"/")
	}
	if own {
		return fmt.Errorf("topic %q: reserved", topic)
	}
	return nil
}

// store stores an update, and returns its id.
func (m *Server) store(ctx context.Context, u *update, key string) (id string, err error) {
	record := u.record()
	switch {
	case len(record) > m.access.Config.MaxMessage:
		return "", stream.ErrTooLong
	case len(key) > event.MaxTopic:
		return "", fmt.Errorf("%w: the key has more than %d bytes", stream.ErrInvalid, event.MaxTopic)
	}
	if u.ID != "" {
		if _, err := m.publisher.Store(ctx, event.MercureIDPrefix+hashOf(u.ID), []byte(u.ID), key); err != nil {
			return "", err
		}
	}
	stored, err := m.publisher.Store(ctx, event.MercureTopic, record, key)
	if err != nil {
		return "", err
	}
	m.publisher.Published.Add(1)
	return cmp.Or(u.ID, "#"+stored.ID), nil
}
