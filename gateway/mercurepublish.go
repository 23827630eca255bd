package gateway

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

	"github.com/socknotify/socknotify/gateway/internal/selector"
)

const (
	formFactor = 3       // bytes of a form for one of its data, at most
	formRoom   = 8 << 10 // bytes of a form beside the data
	maxRetry   = 24 * 60 * 60 * 1000
)

// servePublish answers a POST with a form: topic (one or more), and data, private, id, type and
// retry. As with /publish, the header Idempotency-Key is its key.
func (m *mercure) servePublish(w http.ResponseWriter, r *http.Request) {
	g := m.g
	m.prepare(w, r, g.config.PublishOrigins)
	if !g.config.mayPublish(r) {
		g.refuse(w, r, &denial{status: http.StatusForbidden, text: "this origin may not publish"})
		return
	}
	grant, ok := m.authorize(w, r)
	if !ok {
		return
	}
	id, f := m.publish(w, r, &grant)
	if f != nil {
		g.refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // the publisher may have chosen the id
	w.Write([]byte(id))
}

// publish stores the update of a request, and returns its id.
func (m *mercure) publish(w http.ResponseWriter, r *http.Request, grant *Grant) (string, *denial) {
	g := m.g
	malformed := func(err error) (string, *denial) {
		return "", &denial{status: http.StatusBadRequest, text: err.Error()}
	}
	if len(grant.Mercure.Publish) == 0 {
		return "", &denial{status: http.StatusForbidden, text: "not allowed to publish"}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return "", &denial{status: http.StatusUnsupportedMediaType,
			text: "want application/x-www-form-urlencoded"}
	}
	if wait := g.publishing.take(g.keyOf(grant.Subject, r.RemoteAddr)); wait > 0 {
		return "", &denial{http.StatusTooManyRequests, errRate.Error(), wait}
	}
	body, f := readBody(w, r, int64(g.config.MaxMessage)*formFactor+formRoom)
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
		if !matchesSelector(grant.Mercure.Publish, topic) {
			return "", notAllowed(topic)
		}
	}
	from := newHookRequest("", "http", grant.Subject)
	for _, topic := range u.Topics {
		if f := g.hooks.askPublish(r.Context(), from, topic, string(u.data)); f != nil {
			return "", f
		}
	}
	id, err := m.store(r.Context(), u, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return "", denialOf(err)
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
		if err := checkMercureTopic(topic); err != nil {
			return nil, err
		}
	}
	switch {
	case len(u.Topics) == 0:
		return nil, errors.New("no topic")
	case len(u.Topics) > maxTopics:
		return nil, fmt.Errorf("more than %d topics", maxTopics)
	case !utf8.Valid(u.data):
		return nil, errors.New("data: not UTF-8")
	case u.ID != "" && checkMercureID(u.ID) != nil:
		return nil, fmt.Errorf("id: %w", errMercureID)
	case strings.HasPrefix(u.ID, "#"), u.ID == earliest:
		return nil, errors.New("id: begins with #, or is earliest")
	case len(u.Type) > maxTopic || !utf8.ValidString(u.Type) ||
		strings.ContainsFunc(u.Type, unicode.IsControl):
		return nil, fmt.Errorf("type: want UTF-8 of at most %d bytes without control characters",
			maxTopic)
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

// checkMercureTopic reports what is wrong with a topic that is published to. Those below the path
// of Mercure are the gateway's own: otherwise publishers could forge subscriptions.
func checkMercureTopic(topic string) error {
	if err := selector.Check(topic); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	u, err := url.Parse(strings.ReplaceAll(strings.TrimSpace(topic), `\`, "/"))
	own := topic == "*"
	if err != nil {
		own = own || strings.Contains(strings.ToLower(topic), mercurePath)
	} else {
		clean := path.Clean("/" + u.Path)
		own = own || clean == mercurePath || strings.HasPrefix(clean, mercurePath+"/")
	}
	if own {
		return fmt.Errorf("topic %q: reserved", topic)
	}
	return nil
}

// store stores an update, and returns its id.
func (m *mercure) store(ctx context.Context, u *update, key string) (id string, err error) {
	g, record := m.g, u.record()
	switch {
	case len(record) > g.config.MaxMessage:
		return "", ErrTooLong
	case len(key) > maxTopic:
		return "", fmt.Errorf("%w: the key has more than %d bytes", ErrInvalid, maxTopic)
	}
	if u.ID != "" {
		if _, err := g.store(ctx, mercureIDPrefix+hashOf(u.ID), []byte(u.ID), key); err != nil {
			return "", err
		}
	}
	receipt, err := g.store(ctx, mercureTopic, record, key)
	if err != nil {
		return "", err
	}
	g.hub.count.published.Add(1)
	return cmp.Or(u.ID, "#"+receipt.ID), nil
}
