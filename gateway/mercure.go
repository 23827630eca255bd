package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/selector"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// MercureConfig enables the Mercure protocol, as draft-dunglas-mercure-07 describes it, under
// /.well-known/mercure. Its clients have a Grant.Mercure.
//
// All updates of Mercure are events of one topic of the gateway's own, in the order of the stream,
// and the position in the stream is their id. Each node compares an update with what its clients
// have asked for. So topics of Mercure are no topics of the gateway: no client of the one gets
// events of the other.
type MercureConfig struct {
	// Anonymous lets clients without a token subscribe. They get the updates that are not private.
	Anonymous bool
	// Subscriptions publishes an update when a subscription begins and when it ends, and answers
	// requests for the subscriptions that there are. Each is stored, which costs as much as an
	// update of a publisher.
	Subscriptions bool
}

// A MercureGrant is what a client may do by Mercure's protocol: the claim "mercure" of a token.
type MercureGrant struct {
	// Publish and Subscribe are topic selectors. Each topic of an update must match one of Publish.
	// A client gets a private update if one of its topics matches one of Subscribe.
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
	// Payload is JSON that others get with the client's subscriptions.
	Payload json.RawMessage `json:"payload"`
}

// MercureCookie is the name of the cookie, and MercureParameter of the parameter in the query, that
// may have a token of Mercure's protocol.
const (
	MercureCookie    = "mercureAuthorization"
	MercureParameter = "authorization"
)

const (
	mercurePath   = "/.well-known/mercure"
	mercureLink   = "<" + mercurePath + `>; rel="mercure"`
	lastEventID   = "Last-Event-ID"
	earliest      = "earliest" // the id before the first update that is stored
	maxMercureID  = 512        // bytes of an id
	maxSelectors  = 256        // of a token, for each of its two lists
	maxIDSearch   = 10_000     // updates that are searched for an id that a publisher has chosen
	progressEvery = 512        // updates that a client does not want, before it gets a position
)

// isMercure reports whether a request is one of Mercure's protocol.
func isMercure(r *http.Request) bool {
	return r.URL.Path == mercurePath || strings.HasPrefix(r.URL.Path, mercurePath+"/")
}

// mercureToken returns the token of a request. If there is a header Authorization, it alone counts.
func mercureToken(r *http.Request) string {
	if h, ok := r.Header["Authorization"]; ok {
		if scheme, token, _ := strings.Cut(h[0], " "); strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token)
		}
		return ""
	}
	if t := r.URL.Query().Get(MercureParameter); t != "" {
		return t
	}
	if c, err := r.Cookie(MercureCookie); err == nil {
		return c.Value
	}
	return ""
}

// mercure is what a gateway has for Mercure's protocol. A nil one has nothing.
type mercure struct {
	g       *Gateway
	config  MercureConfig
	events  *sse.Server
	tracker *tracker // nil without Subscriptions

	mu        sync.Mutex
	selectors map[string]*watched
}

func (g *Gateway) newMercure(config *MercureConfig) error {
	if config == nil {
		return nil
	}
	m := &mercure{g: g, config: *config, selectors: make(map[string]*watched)}
	m.events = g.newEvents()
	m.events.OnOpen = m.open
	m.events.OnHeartbeat = func(c *sse.Conn) { c.Value.(*mercureStream).heartbeat() }
	m.events.OnClose = func(c *sse.Conn, _ error) {
		s := c.Value.(*mercureStream)
		g.left(&s.subscriber, "sse")
		m.tracker.left(s)
		m.release(s.wanted)
		m.release(s.allowed)
	}
	// The first block has the time to come back, and nothing that is dropped could be told.
	m.events.Retry, m.events.SlowPolicy = -1, SlowClose
	if config.Subscriptions {
		var err error
		if m.tracker, err = newTracker(m); err != nil {
			return err
		}
	}
	g.mercure = m
	return nil
}

func (m *mercure) shutdown(ctx context.Context) error {
	if m == nil {
		return nil
	}
	err := m.events.Shutdown(ctx)
	m.tracker.wait(ctx)
	return err
}

func (m *mercure) close() {
	if m != nil {
		m.events.Close()
	}
}

func (m *mercure) stats() (s sse.Stats) {
	if m != nil {
		s = m.events.Stats()
	}
	return s
}

// routeMercure is route for the paths of Mercure's protocol.
func (g *Gateway) routeMercure() {
	m := g.mercure
	if m == nil {
		return
	}
	g.mux.HandleFunc("GET "+mercurePath, g.subscribeBy(m.accept, m.begin, m.serve))
	g.mux.HandleFunc("POST "+mercurePath, m.servePublish)
	g.mux.HandleFunc("OPTIONS "+mercurePath, func(w http.ResponseWriter, r *http.Request) {
		origins := g.config.Origins
		if r.Header.Get("Access-Control-Request-Method") == http.MethodPost {
			origins = g.config.PublishOrigins
		}
		allowOrigin(w, r, origins)
		w.WriteHeader(http.StatusNoContent)
	})
	m.tracker.route(g.mux)
}

// prepare sets the headers that all answers have, for pages of some origins.
func (m *mercure) prepare(w http.ResponseWriter, r *http.Request, origins []string) {
	allowOrigin(w, r, origins)
	h := w.Header()
	h.Set("Link", mercureLink)
	h.Set("Cache-Control", "private, no-store, no-transform") // the token may be in the URL
	if exposed := h.Get("Access-Control-Expose-Headers"); exposed != "" {
		h.Set("Access-Control-Expose-Headers", exposed+", Link, "+lastEventID)
	}
}

// A watched is a topic selector that clients of this node have. They share it.
type watched struct {
	*selector.Selector
	refs int // guarded by mercure.mu

	// The result for the last update that was dispatched; guarded by the mu of the updates' feed.
	seq uint64
	hit bool
}

// acquire returns the selectors with some texts. release must follow.
func (m *mercure) acquire(texts []string) (all []*watched, err error) {
	for _, text := range texts {
		s, err := selector.Parse(text)
		if err != nil {
			m.release(all)
			return nil, err
		}
		m.mu.Lock()
		one := m.selectors[s.String()]
		if one == nil {
			// A client must not keep its request in memory.
			if s, err = selector.Parse(strings.Clone(text)); err != nil {
				panic(err) // it is the same text
			}
			one = &watched{Selector: s}
			m.selectors[s.String()] = one
		}
		one.refs++
		m.mu.Unlock()
		all = append(all, one)
	}
	return all, nil
}

func (m *mercure) release(all []*watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range all {
		if w.refs--; w.refs == 0 {
			delete(m.selectors, w.String())
		}
	}
}

// matchesAny reports whether one of the selectors matches one of the topics.
func matchesAny(all []*watched, topics []string) bool {
	return slices.ContainsFunc(all, func(w *watched) bool {
		return slices.ContainsFunc(topics, w.Matches)
	})
}

// matchesUpdate is matchesAny for an update that is dispatched: each template is compared once, for
// all clients that have it. The caller holds the mu of the feed.
func matchesUpdate(all []*watched, u *update) bool {
	for _, w := range all {
		if !w.Template() {
			if slices.Contains(u.Topics, w.String()) {
				return true
			}
			continue
		}
		if w.seq != u.seq {
			w.seq, w.hit = u.seq, slices.ContainsFunc(u.Topics, w.Matches)
		}
		if w.hit {
			return true
		}
	}
	return false
}

// A mercureAsk is what a request to subscribe has beside an ask.
type mercureAsk struct {
	topics   []string // the selectors that the client wants
	allowed  []string // the selectors of private updates that it may get
	payload  json.RawMessage
	last     string // the id of the last update that it has, or empty
	answered string // the id of the update before the first one that it gets
	bare     bool   // see mercureStream
}

// accept checks a request to subscribe, as Gateway.accept does.
func (m *mercure) accept(w http.ResponseWriter, r *http.Request) (a ask, ok bool) {
	g := m.g
	m.prepare(w, r, g.config.Origins)
	if !g.admit(w, r) {
		return a, false
	}
	q, err := parseMercureAsk(r)
	if err != nil {
		g.reject(w, r, http.StatusBadRequest, err.Error())
		return a, false
	}
	grant, ok := m.authorize(w, r)
	if !ok || !g.introduce(w, r, &a, &grant) {
		return a, false
	}
	q.allowed = grant.Mercure.Subscribe
	if m.tracker != nil {
		q.payload = bytes.Clone(grant.Mercure.Payload)
	}
	a.mercure, a.wants = q, []want{{filter: mercureTopic}}
	if f := g.consult(r, &a); f != nil {
		g.refuse(w, r, f)
		return a, false
	}
	return a, true
}

func parseMercureAsk(r *http.Request) (*mercureAsk, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query is malformed")
	}
	// The second name is that of older drafts, which the pages of older versions of symfony/mercure use.
	q := &mercureAsk{last: cmp.Or(query.Get("lastEventID"), query.Get(lastEventID)),
		bare: !mayBeEventSource(r)}
	if id := r.Header.Get(lastEventID); id != "" {
		q.last = id
	}
	if q.last != "" && checkMercureID(q.last) != nil {
		return nil, fmt.Errorf("%s: %w", lastEventID, errMercureID)
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
	case len(q.topics) > maxTopics:
		return nil, fmt.Errorf("more than %d topics", maxTopics)
	}
	return q, nil
}

// mayBeEventSource reports whether a client may be a browser's EventSource, which sends no header
// Authorization. User-Agent begins with Mozilla/ in all browsers, and in no client library known.
func mayBeEventSource(r *http.Request) bool {
	return r.Header.Get("Authorization") == "" && strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

var errMercureID = fmt.Errorf("want UTF-8 of at most %d bytes without control characters",
	maxMercureID)

func checkMercureID(id string) error {
	if len(id) > maxMercureID || selector.Check(id) != nil {
		return errMercureID
	}
	return nil
}

// authorize is Gateway.authorize, and refuses a grant with selectors that are none.
func (m *mercure) authorize(w http.ResponseWriter, r *http.Request) (Grant, bool) {
	grant, ok := m.g.authorize(w, r)
	if !ok {
		return grant, false
	}
	for _, list := range [][]string{grant.Mercure.Publish, grant.Mercure.Subscribe} {
		wrong := len(list) > maxSelectors
		for _, text := range list {
			_, err := selector.Parse(text)
			wrong = wrong || err != nil
		}
		if wrong {
			m.g.denyToken(w)
			return grant, false
		}
	}
	return grant, true
}

// begin finds out where a client begins: after the update that it names, which may be one of an
// earlier stream of which this one was made. If that is not known, it gets all updates that are
// stored, so that it loses none of them.
func (m *mercure) begin(ctx context.Context, a *ask) (err error) {
	q, w, known := a.mercure, &a.wants[0], true
	switch id := q.last; {
	case id == "":
	case id == earliest:
		known = false
	case id[0] == '#':
		w.after, known = m.positionOf(id)
	default:
		w.after, known, err = m.find(ctx, id)
	}
	if err != nil {
		return err
	}
	if !known {
		w.after = position{epoch: beginning}
	}
	missed, err := m.g.hub.locate(ctx, a.wants)
	if err != nil {
		return err
	}
	switch {
	case !known, w.after.seq == 0:
		q.answered = earliest
	case missed == nil && q.last != "":
		q.answered = q.last
	default:
		q.answered = mercureID(w.after)
	}
	return nil
}

// mercureID is the id of the update at a position.
func mercureID(at position) string { return "#" + at.String() }

// positionOf parses an id that this gateway has made. It reports whether it is one of this stream,
// or of one that this one was made from.
func (m *mercure) positionOf(id string) (at position, known bool) {
	all, err := parsePositions(id[1:])
	if err != nil || len(all) != 1 || all[0].epoch == beginning || all[0].epoch == "" {
		return at, false
	}
	at = all[0]
	known = at.epoch == m.g.hub.epoch
	for _, e := range m.g.hub.seen.Load().eras {
		known = known || e.Epoch == at.epoch
	}
	return at, known
}

var errFound = errors.New("found")

// find finds an update by the id that its publisher has chosen. A record with the id is stored
// before the update is, so the update is after it.
func (m *mercure) find(ctx context.Context, id string) (at position, found bool, err error) {
	h := &m.g.hub.history
	record, err := h.last(ctx, mercureIDPrefix+hashOf(id))
	if err != nil || record == 0 {
		return at, false, err
	}
	end, err := h.last(ctx, mercureTopic)
	if err != nil {
		return at, false, err
	}
	searched := 0
	_, err = h.replay(ctx, m.g.hub.epoch, mercureTopic, record, end, func(e *event) error {
		if u, ok := parseUpdate(e); ok && u.ID == id {
			at, found = e.at, true
			return errFound
		}
		if searched++; searched == maxIDSearch {
			return errFound
		}
		return nil
	}, func(span) {})
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

// serve makes a client of a request.
func (m *mercure) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	w.Header().Set(lastEventID, a.mercure.answered)
	w.Header().Set(clientHeader, m.g.hub.clients.name(a.id))
	if _, err := m.events.Open(w, r.WithContext(context.WithValue(ctx, askKey{}, a))); err != nil {
		m.g.hub.count.rejected.Add(1)
	}
}

// A mercureStream is a client that subscribes by Mercure's protocol. It is a member of the feed of
// all updates, and chooses among them.
//
// Between updates it gets its position, as an id without data, so that it does not come back with
// an id that has left the stream. A browser's EventSource takes that as its last id, without an
// event for the page, if the block ends. Some other clients, such as symfony/http-client, give each
// block that ends to the program. So for clients that are not EventSource blocks with an id alone,
// and heartbeats, do not end: bare says so.
type mercureStream struct {
	subscriber
	m       *mercure
	conn    *sse.Conn
	wanted  []*watched
	allowed []*watched
	name    string // the IRI of the subscriber
	payload json.RawMessage
	bare    bool
	joined  atomic.Bool
	skipped int // updates that it did not want, in the history

	// The position that it was told last. It belongs to the goroutine of open until the client is a
	// member of the feed, and is guarded by the feed's mu then.
	told uint64
}

// open joins the hub, which delivers what the client has missed.
func (m *mercure) open(c *sse.Conn, r *http.Request, _ string) error {
	a := r.Context().Value(askKey{}).(ask)
	s := &mercureStream{m: m, conn: c, name: newIRI(), payload: a.mercure.payload,
		bare: a.mercure.bare}
	s.to = s
	a.identify(&s.subscriber)
	c.Value = s
	*a.kept = true
	var err error
	if s.wanted, err = m.acquire(a.mercure.topics); err != nil {
		return err
	}
	if s.allowed, err = m.acquire(a.mercure.allowed); err != nil {
		return err
	}
	var b []byte
	if d := m.g.config.Retry.Milliseconds(); d > 0 {
		b = fmt.Appendf(b, "retry: %d\n", d/2+mrand.Int64N(d+1))
	}
	s.tell(b, a.wants[0].after.seq)
	if err := m.g.hub.join(r.Context(), &s.subscriber, a.wants); err != nil {
		return err // the client comes back with its id
	}
	s.joined.Store(true)
	m.tracker.joined(s)
	return nil
}

// newIRI returns the IRI of a subscriber.
func newIRI() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *mercureStream) stream() *park.Stream { return (*park.Stream)(s.conn) }

// tell writes what is in b, and the position of the client.
func (s *mercureStream) tell(b []byte, seq uint64) {
	s.told = seq
	s.stream().WriteShared(appendMercurePosition(b, position{s.m.g.hub.epoch, seq}, s.bare))
}

// appendMercurePosition appends a position. It ends the block unless bare is set.
func appendMercurePosition(b []byte, at position, bare bool) []byte {
	b = append(at.append(append(b, "id: #"...)), '\n')
	if !bare {
		b = append(b, '\n')
	}
	return b
}

// dispatchUpdate gives an update to the members that want it and may get it. The caller holds f.mu.
func (f *feed) dispatchUpdate(e *event) {
	u, ok := parseUpdate(e)
	if !ok {
		f.hub.count.strange.Add(1)
		return
	}
	delivered := uint64(0)
	for _, m := range f.members {
		s := m.client.to.(*mercureStream)
		if e.at.seq <= m.after || !matchesUpdate(s.wanted, u) ||
			u.Private && !matchesUpdate(s.allowed, u) {
			continue
		}
		s.write(u)
		delivered++
	}
	f.hub.count.delivered.Add(delivered)
}

// replay gives an update of the history to the client, and reports whether the client wants it and
// may get it.
func (s *mercureStream) replay(e *event) bool {
	u, ok := parseUpdate(e)
	if !ok {
		return false
	}
	if !matchesAny(s.wanted, u.Topics) || u.Private && !matchesAny(s.allowed, u.Topics) {
		if s.skipped++; s.skipped%progressEvery == 0 { // it may take more than one connection
			s.tell(nil, u.seq)
		}
		return false
	}
	s.write(u)
	return true
}

func (s *mercureStream) write(u *update) {
	s.told = u.seq
	s.stream().WriteShared(u.block(s.bare))
}

// send implements sink.
func (s *mercureStream) send(_ int, e *event) { s.replay(e) }

// gap implements sink. A client is told in the answer to its next request what it has lost.
func (s *mercureStream) gap(int, string, span) { s.stream().Close(errGap) }

var errGap = errors.New("gateway: events have left the stream before the client got them")

// flush implements sink.
func (s *mercureStream) flush(ctx context.Context) error { return s.conn.Flush(ctx) }

// end implements sink.
func (s *mercureStream) end(_ *Gateway, reason error) { s.stream().Close(reason) }

// unsubscribed implements sink. No order has the topic of the updates.
func (s *mercureStream) unsubscribed(*Gateway, int) {}

// heartbeat is called when nothing was sent for a time. The position is written while the feed is
// held, so that no update with a lower one follows.
func (s *mercureStream) heartbeat() {
	if s.joined.Load() {
		f := s.topics[0].feed
		f.mu.Lock()
		defer f.mu.Unlock()
		if at := f.settled(); f.begun && at > s.told {
			s.tell(nil, at)
			return
		}
	}
	s.stream().WriteShared(mercureHeartbeat)
}

var mercureHeartbeat = []byte(":\n")

// An update is what a publisher has sent. Stored, it is a line of JSON and the data.
type update struct {
	Topics  []string `json:"topics"`
	Private bool     `json:"private,omitempty"`
	ID      string   `json:"id,omitempty"` // that the publisher has chosen
	Type    string   `json:"type,omitempty"`
	Retry   int64    `json:"retry,omitempty"` // in milliseconds
	data    []byte
	at      position
	seq     uint64

	ended, open []byte // block
}

// record returns what is stored of an update.
func (u *update) record() []byte { return append(append(encode(u), '\n'), u.data...) }

// parseUpdate parses what record has returned.
func parseUpdate(e *event) (u *update, ok bool) {
	head, data, ok := bytes.Cut(e.data, []byte{'\n'})
	u = &update{data: data, at: e.at, seq: e.at.seq}
	if !ok || json.Unmarshal(head, u) != nil {
		return nil, false
	}
	return u, true
}

// block returns the update as a block of Server-Sent Events. One with an id that its publisher has
// chosen is followed by its position, which is what the client comes back with. block is called by
// one goroutine at a time.
func (u *update) block(bare bool) []byte {
	b := &u.ended
	if bare {
		b = &u.open
	}
	if *b == nil {
		id := u.ID
		if id == "" {
			id = mercureID(u.at)
		}
		e := sse.Event{ID: id, Name: u.Type, Data: string(u.data),
			Retry: time.Duration(u.Retry) * time.Millisecond}
		block, err := sse.Append(nil, e)
		if err != nil { // published past the checks of a gateway
			block = appendMercurePosition(nil, u.at, bare)
		} else if u.ID != "" {
			block = appendMercurePosition(block, u.at, bare)
		}
		*b = block
	}
	return *b
}
