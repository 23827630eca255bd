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
	wants  []want
	form   form
	gap    *gap   // that the client must be told of, or nil
	stored bool   // the client wants to know what is stored; a poll does not wait for more
	id     uint64 // of the connection
	identity
	client  string      // for the limits
	write   []string    // topics that the client may publish to on its connection
	mercure *mercureAsk // of a request of Mercure's protocol, or nil
	kept    *bool       // set when there is a connection that counts the client out when it ends
}

// joinTimeout bounds the time that a client takes to get what it has missed.
const joinTimeout = time.Minute

// subscribe returns a handler of requests to subscribe. It checks and counts the request, finds out where each topic begins,
// and calls serve. ctx is done when the gateway is closed, when the client is known to be gone, or
// after joinTimeout.
func (g *Gateway) subscribe(serve func(context.Context, http.ResponseWriter, *http.Request, ask)) http.HandlerFunc {
	return g.subscribeBy(g.accept, g.beginTopics, serve)
}

// beginTopics finds out where each topic of a request begins.
func (g *Gateway) beginTopics(ctx context.Context, a *ask) (err error) {
	a.gap, err = g.hub.locate(ctx, a.wants)
	return err
}

// subscribeBy is subscribe with the functions that check a request, and find out where it begins.
func (g *Gateway) subscribeBy(accept func(http.ResponseWriter, *http.Request) (ask, bool),
	begin func(context.Context, *ask) error,
	serve func(context.Context, http.ResponseWriter, *http.Request, ask)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // ServeMux takes it for GET
			w.Header().Set("Allow", http.MethodGet)
			g.reject(w, r, http.StatusMethodNotAllowed, "want GET")
			return
		}
		a, ok := accept(w, r)
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
		defer context.AfterFunc(r.Context(), cancel)()
		if err := begin(ctx, &a); err != nil {
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
// of Server-Sent Events has the positions of all topics. The parameter last is the number of stored
// events with which a topic without an id begins.
func (g *Gateway) accept(w http.ResponseWriter, r *http.Request) (a ask, ok bool) {
	allowOrigin(w, r, g.config.Origins)
	if !g.admit(w, r) {
		return a, false
	}
	a, err := g.parseAsk(r)
	if err != nil {
		g.reject(w, r, http.StatusBadRequest, err.Error())
		return a, false
	}
	grant, ok := g.authorize(w, r)
	if !ok {
		return a, false
	}
	if !g.introduce(w, r, &a, &grant) {
		return a, false
	}
	if r.URL.Path == socketPath && g.config.mayPublish(r) {
		a.write = grant.Write
	}
	for _, want := range a.wants {
		if !grant.mayRead(want.filter) {
			g.refuse(w, r, notAllowed(want.filter))
			return a, false
		}
	}
	if f := g.consult(r, &a); f != nil {
		g.refuse(w, r, f)
		return a, false
	}
	return a, true
}

// admit reports whether a request to subscribe may be looked at now. If not, admit answers it.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case g.draining.Load():
		g.unavailable(w, r, errDrain)
		return false
	case g.arrivals != nil && !g.arrivals.Allow():
		g.busy(w, r, "AcceptRate")
		return false
	}
	return true
}

// introduce gives a request to subscribe the id of its connection, and what its grant says of the
// client. It reports whether the client's rate allows the request. If not, introduce answers it.
func (g *Gateway) introduce(w http.ResponseWriter, r *http.Request, a *ask, grant *Grant) bool {
	a.id, a.user = g.hub.clients.newID(), strings.Clone(grant.Subject)
	a.client = g.keyOf(grant.Subject, r.RemoteAddr)
	if !grant.Expires.IsZero() {
		a.expires = grant.Expires.Unix()
	}
	if wait := g.subscribing.take(a.client); wait > 0 {
		g.refuse(w, r, &denial{http.StatusTooManyRequests, errRate.Error(), wait})
		return false
	}
	return true
}

var errBusy = errors.New("gateway: too many clients")

// busy answers that the client should come back, because of a limit.
func (g *Gateway) busy(w http.ResponseWriter, r *http.Request, limit string) {
	g.log.Log(serving.LevelLimit, "client refused", "limit", limit, "remote", r.RemoteAddr)
	g.unavailable(w, r, errBusy)
}

// identify gives a new subscriber what the request says of it.
func (a *ask) identify(s *subscriber) {
	s.id, s.identity = a.id, &anonymous
	if a.identity != anonymous {
		who := a.identity
		s.identity = &who
	}
}

// A denial is an answer to a client that does not get what it asks for.
type denial struct {
	status int // of HTTP
	text   string
	wait   time.Duration // before the next attempt, if that makes sense
}

func (f *denial) Error() string { return f.text }

var errRate = errors.New("gateway: more than the rate of a client")

func notAllowed(topic string) *denial {
	return &denial{status: http.StatusForbidden, text: fmt.Sprintf("topic %q: not allowed", topic)}
}

// count counts and logs a denial.
func (g *Gateway) count(f *denial, remote string) {
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		g.hub.count.denied.Add(1)
	case http.StatusTooManyRequests:
		g.log.Log(serving.LevelLimit, "client refused", "limit", "rate", "remote", remote)
		fallthrough
	case http.StatusServiceUnavailable:
		g.hub.count.refused.Add(1)
	default:
		g.hub.count.rejected.Add(1)
		g.log.Log(serving.LevelBadPeer, "request rejected", "err", f.text, "remote", remote)
	}
}

// refuse answers a request with a denial.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, f *denial) {
	g.count(f, r.RemoteAddr)
	switch {
	case f.status == http.StatusServiceUnavailable:
		comeBack(w, r, g.config.Retry, errors.New(f.text))
		return
	case f.wait > 0:
		seconds := int64((f.wait + time.Second - 1) / time.Second)
		answerLater(w, r, f.status, seconds, f.text)
		return
	}
	http.Error(w, f.text, f.status)
}

// reject answers a request that is malformed or too large.
func (g *Gateway) reject(w http.ResponseWriter, r *http.Request, status int, reason string) {
	g.refuse(w, r, &denial{status: status, text: reason})
}

// unavailable answers that the client should come back.
func (g *Gateway) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	g.hub.count.refused.Add(1)
	comeBack(w, r, g.config.Retry, err)
}

// comeBack answers that the client should come back, after a time that differs between clients.
func comeBack(w http.ResponseWriter, r *http.Request, retry time.Duration, err error) {
	seconds := max(int64(retry.Seconds()), 1)
	seconds += rand.Int64N(seconds + 1)
	answerLater(w, r, http.StatusServiceUnavailable, seconds, err.Error())
}

// answerLater answers that the client should come back after some seconds. A browser's EventSource
// ends for good at an answer that is not 200. So it gets a stream that says when to come back, and
// ends.
func answerLater(w http.ResponseWriter, r *http.Request, status int, seconds int64, text string) {
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	if (r.URL.Path == "/events" || r.URL.Path == mercurePath) && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), sse.ContentType) {
		h.Set("Content-Type", sse.ContentType)
		h.Set("Cache-Control", "no-store")
		fmt.Fprintf(w, ": %s\nretry: %d\n\n", text, seconds*1000)
		return
	}
	http.Error(w, text, status)
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

func (g *Gateway) parseAsk(r *http.Request) (a ask, err error) {
	query := r.URL.Query()
	topics, after := query["topic"], query["after"]
	id := r.Header.Get("Last-Event-ID")
	if id != "" {
		after = []string{id}
	}
	switch {
	case len(topics) == 0 && r.URL.Path != socketPath: // a WebSocket may be there for publishing alone
		return a, errors.New("no topic")
	case len(topics) > maxTopics:
		return a, fmt.Errorf("more than %d topics", maxTopics)
	}
	positions, err := parseAfter(after, len(topics))
	if err != nil && id != "" && r.URL.Path == "/events" && !strings.HasPrefix(id, g.hub.epoch+"-") {
		// A browser keeps the id that it has got from the server before, and ends for good at a 400.
		positions, err = []position{{epoch: foreign}}, nil
	}
	if err != nil {
		return a, err
	}
	last := 0
	if n := query.Get("last"); n != "" {
		if last, err = strconv.Atoi(n); err != nil || last < 1 || last > maxLast/max(len(topics), 1) {
			return a, fmt.Errorf("last: want a number from 1 to %d, divided by the topics", maxLast)
		}
		a.stored = true
	}
	for i, t := range topics {
		if err := g.checkWanted(r, t); err != nil {
			return a, err
		}
		p := position{}
		if len(positions) > 0 {
			p = positions[i%len(positions)]
		}
		if slices.ContainsFunc(a.wants, func(w want) bool { return w.filter == t }) {
			return a, fmt.Errorf("topic %q: twice", t)
		}
		// A client must not keep its request in memory.
		a.wants = append(a.wants, want{strings.Clone(t), p, last})
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

// checkWanted reports what is wrong with a topic that a client subscribes to.
func (g *Gateway) checkWanted(r *http.Request, topic string) error {
	of, ok := presenceOf(topic)
	switch {
	case !ok:
		return checkTopic(topic, true)
	case r.URL.Path == "/poll":
		return fmt.Errorf("topic %q: not by long polling", topic)
	}
	return g.checkPresence(of)
}

// maxLast bounds the stored events with which the topics of a request begin, together.
const maxLast = 1000

// parseAfter parses the ids of a request for some topics: none, one for all, or one for each.
func parseAfter(after []string, topics int) (positions []position, err error) {
	for _, id := range after {
		p, err := parsePositions(id)
		if err != nil {
			return nil, err
		}
		if len(p) > 1 && len(after) > 1 {
			return nil, errID
		}
		positions = append(positions, p...)
	}
	if len(positions) > 1 && len(positions) != topics {
		return nil, errors.New("after: want one, or one for each topic")
	}
	return positions, nil
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
	h.Set("Access-Control-Expose-Headers", clientHeader)
	if slices.Contains(origins, origin) { // cookies are not for any origin
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers",
			"Authorization, Cache-Control, Content-Type, Idempotency-Key, Last-Event-ID")
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
