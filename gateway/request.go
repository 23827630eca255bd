package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// An ask is a request to subscribe, checked and allowed.
type ask struct {
	wants   []want
	form    form
	expires int64
	gap     *gap  // that the client must be told of, or nil
	kept    *bool // set when there is a connection that counts the client out when it ends
}

// joinTimeout bounds the time that a client takes to get what it has missed.
const joinTimeout = time.Minute

// subscribe returns a handler of requests to subscribe. It checks and counts the request, finds out where each topic begins,
// and calls serve. ctx is done when the gateway is closed, or after joinTimeout.
func (g *Gateway) subscribe(serve func(context.Context, http.ResponseWriter, *http.Request, ask)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // ServeMux takes it for GET
			w.Header().Set("Allow", http.MethodGet)
			g.reject(w, r, http.StatusMethodNotAllowed, "want GET")
			return
		}
		a, ok := g.accept(w, r)
		if !ok {
			return
		}
		if !g.enter() {
			g.unavailable(w, r, errDrain)
			return
		}
		defer g.opening.Done()
		a.kept = new(bool)
		clients := g.hub.count.clients.Add(1)
		defer func() {
			if !*a.kept {
				g.hub.count.clients.Add(-1)
			}
		}()
		if g.config.MaxConns > 0 && clients > int64(g.config.MaxConns) {
			g.busy(w, r, "MaxConns")
			return
		}
		ctx, cancel := context.WithTimeout(g.hub.ctx, joinTimeout)
		defer cancel()
		var err error
		if a.gap, err = g.hub.begin(ctx, a.wants); err != nil {
			g.unavailable(w, r, err)
			return
		}
		serve(ctx, w, r, a)
	}
}

// accept checks a request to subscribe. If it may not, accept answers it and returns false.
//
// The parameter topic may be repeated. The parameter after is the id of the last event that the client has seen: one for all
// topics, or one for each topic, in the same order. The header Last-Event-ID, which browsers send, counts before it. An id
// of Server-Sent Events has the positions of all topics.
func (g *Gateway) accept(w http.ResponseWriter, r *http.Request) (a ask, ok bool) {
	allowOrigin(w, r, g.config.Origins)
	switch {
	case g.draining.Load():
		g.unavailable(w, r, errDrain)
		return a, false
	case g.arrivals != nil && !g.arrivals.Allow():
		g.busy(w, r, "AcceptRate")
		return a, false
	}
	a, err := parseAsk(r)
	if err != nil {
		g.reject(w, r, http.StatusBadRequest, err.Error())
		return a, false
	}
	grant, ok := g.authorize(w, r)
	if !ok {
		return a, false
	}
	for _, want := range a.wants {
		if !allows(grant.Read, want.filter) {
			g.hub.count.denied.Add(1)
			http.Error(w, fmt.Sprintf("topic %q: not allowed", want.filter), http.StatusForbidden)
			return a, false
		}
	}
	if !grant.Expires.IsZero() {
		a.expires = grant.Expires.Unix()
	}
	return a, true
}

var errBusy = errors.New("gateway: too many clients")

// busy answers that the client should come back, because of a limit.
func (g *Gateway) busy(w http.ResponseWriter, r *http.Request, limit string) {
	g.log.Log(serving.LevelLimit, "client refused", "limit", limit, "remote", r.RemoteAddr)
	g.unavailable(w, r, errBusy)
}

// reject answers a request that is malformed or too large.
func (g *Gateway) reject(w http.ResponseWriter, r *http.Request, status int, reason string) {
	g.hub.count.rejected.Add(1)
	g.log.Log(serving.LevelBadPeer, "request rejected", "err", reason, "remote", r.RemoteAddr)
	http.Error(w, reason, status)
}

// unavailable answers that the client should come back.
func (g *Gateway) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	g.hub.count.refused.Add(1)
	comeBack(w, r, g.config.Retry, err)
}

// comeBack answers that the client should come back, after a time that differs between clients. A
// browser's EventSource ends for good at an answer that is not 200. So it gets a stream that says
// when to come back, and ends.
func comeBack(w http.ResponseWriter, r *http.Request, retry time.Duration, err error) {
	seconds := max(int64(retry.Seconds()), 1)
	seconds += rand.Int64N(seconds + 1)
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	if r.URL.Path == "/events" && strings.Contains(r.Header.Get("Accept"), sse.ContentType) {
		h.Set("Content-Type", sse.ContentType)
		h.Set("Cache-Control", "no-store")
		fmt.Fprintf(w, ": %s\nretry: %d\n\n", err, seconds*1000)
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// Unready returns a handler for the time until [New] has returned, which in a cluster takes until a
// majority of the members runs. /healthz says that the process runs. Other requests are answered as
// by a gateway that cannot serve clients now.
func Unready(config Config) http.Handler {
	config.Retry = cmp.Or(config.Retry, defaultRetry)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			serveHealth(w, r)
			return
		}
		allowOrigin(w, r, config.Origins)
		comeBack(w, r, config.Retry, errUnready)
	})
}

var errUnready = errors.New("gateway: not ready yet")

func serveHealth(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) }

func parseAsk(r *http.Request) (a ask, err error) {
	query := r.URL.Query()
	topics, after := query["topic"], query["after"]
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		after = []string{id}
	}
	switch {
	case len(topics) == 0:
		return a, errors.New("no topic")
	case len(topics) > maxTopics:
		return a, fmt.Errorf("more than %d topics", maxTopics)
	}
	var positions []position
	for _, id := range after {
		p, err := parsePositions(id)
		if err != nil {
			return a, err
		}
		if len(p) > 1 && len(after) > 1 {
			return a, errID
		}
		positions = append(positions, p...)
	}
	if len(positions) > 1 && len(positions) != len(topics) {
		return a, errors.New("after: want one, or one for each topic")
	}
	for i, t := range topics {
		if err := checkTopic(t, true); err != nil {
			return a, err
		}
		p := position{}
		if len(positions) > 0 {
			p = positions[i%len(positions)]
		}
		if slices.ContainsFunc(a.wants, func(w want) bool { return w.filter == t }) {
			return a, fmt.Errorf("topic %q: twice", t)
		}
		a.wants = append(a.wants, want{strings.Clone(t), p}) // a client must not keep its request in memory
	}
	switch f := query.Get("format"); f {
	case "", "text":
	case "json":
		a.form = formEnvelope
	default:
		return a, errors.New("format: want text or json")
	}
	return a, nil
}

// allowOrigin sets the headers that let pages of other origins use the gateway, if the origin is
// one of the given ones.
func allowOrigin(w http.ResponseWriter, r *http.Request, origins []string) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !allowsOrigin(origins, origin) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if slices.Contains(origins, origin) { // cookies are not for any origin
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "600")
	}
}

func allowsOrigin(origins []string, origin string) bool {
	return origin != "" && (slices.Contains(origins, origin) || slices.Contains(origins, "*"))
}

// mayPublish reports whether the page that has sent a request may publish. Browsers send a POST of
// any page, with the cookies of the gateway, and keep only the answer from the page.
func (c *Config) mayPublish(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && (websocket.SameOrigin(r) || slices.Contains(c.PublishOrigins, origin)) {
		return true
	}
	if r.Header.Get("Cookie") != "" && r.Header.Get("Authorization") == "" {
		return false
	}
	return origin == "" || slices.Contains(c.PublishOrigins, "*")
}

// allowsHost reports whether the gateway serves the host of a request.
func (c *Config) allowsHost(r *http.Request) bool {
	switch {
	case r.Host == "", serving.KnownHost(r.Host, c.Hosts), slices.Contains(c.Hosts, "*"):
		return true
	case len(c.Hosts) > 0:
		return false
	case c.Authorize != nil:
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || !local.IP.IsLoopback()
}
