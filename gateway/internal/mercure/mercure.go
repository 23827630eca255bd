package mercure

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/mercure/selector"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/transport"
	"github.com/socknotify/socknotify/sse"
)

// The cookie, and the parameter in the query, that may have a token. They are those of package
// gateway.
const (
	Cookie    = "mercureAuthorization"
	Parameter = "authorization"
)

const (
	Path          = "/.well-known/mercure"
	link          = "<" + Path + `>; rel="mercure"`
	lastEventID   = "Last-Event-ID"
	earliest      = "earliest" // the id before the first update that is stored
	maxID         = 512        // bytes of an id
	maxSelectors  = 256        // of a token, for each of its two lists
	maxIDSearch   = 10_000     // updates that are searched for an id that a publisher has chosen
	progressEvery = 512        // updates that a client does not want, before it gets a position
)

// Is reports whether a request is one of Mercure's protocol.
func Is(r *http.Request) bool {
	return r.URL.Path == Path || strings.HasPrefix(r.URL.Path, Path+"/")
}

// Token returns the token of a request. If there is a header Authorization, it alone counts.
func Token(r *http.Request) string {
	if h, ok := r.Header["Authorization"]; ok {
		if scheme, token, _ := strings.Cut(h[0], " "); strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token)
		}
		return ""
	}
	if t := r.URL.Query().Get(Parameter); t != "" {
		return t
	}
	if c, err := r.Cookie(Cookie); err == nil {
		return c.Value
	}
	return ""
}

// A Server serves Mercure's protocol. A nil one has no clients.
type Server struct {
	config     Config
	access     *access.Control
	hub        *hub.Hub
	publisher  *stream.Publisher
	presence   *presence.Presence // asks nodes
	transports *transport.Server
	events     *sse.Server
	tracker    *tracker // nil without Subscriptions

	mu        sync.Mutex
	selectors map[string]*watched
}

// A Config is as gateway.MercureConfig.
type Config struct {
	Anonymous     bool
	Subscriptions bool
}

// prepare sets the headers that all answers have, for pages of some origins.
func (m *Server) prepare(w http.ResponseWriter, r *http.Request, origins []string) {
	access.AllowOrigin(w, r, origins)
	h := w.Header()
	h.Set("Link", link)
	h.Set("Cache-Control", "private, no-store, no-transform") // the token may be in the URL
	if exposed := h.Get("Access-Control-Expose-Headers"); exposed != "" {
		h.Set("Access-Control-Expose-Headers", exposed+", Link, "+lastEventID)
	}
}

// authorize returns what a client may do. A grant with selectors that are none is refused. If
// Anonymous is set, a client without a token gets the updates that are not private.
func (m *Server) authorize(w http.ResponseWriter, r *http.Request) (access.Grant, bool) {
	g, err := m.access.Permission(r)
	switch {
	case errors.Is(err, access.ErrNoToken) && m.config.Anonymous && r.Method == http.MethodGet && r.URL.Path == Path:
		return access.Grant{}, true
	case err != nil, !areSelectors(g.Mercure.Publish), !areSelectors(g.Mercure.Subscribe):
		m.access.DenyToken(w)
		return access.Grant{}, false
	}
	return g, true
}

// areSelectors reports whether the texts of a token's list are selectors, and not too many.
func areSelectors(texts []string) bool {
	return len(texts) <= maxSelectors && !slices.ContainsFunc(texts, func(text string) bool {
		_, err := selector.Parse(text)
		return err != nil
	})
}
