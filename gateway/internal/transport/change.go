package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
	"github.com/socknotify/socknotify/stream"
)

// A change is what a client asks for on an open connection: one of the three.
type change struct {
	Subscribe   json.RawMessage `json:"subscribe"`   // a topic, as in a request to subscribe
	Unsubscribe json.RawMessage `json:"unsubscribe"` // a topic
	Refresh     json.RawMessage `json:"refresh"`     // a new token
}

// count returns how many of the fields there are.
func (q *change) count() (n int) {
	for _, b := range []json.RawMessage{q.Subscribe, q.Unsubscribe, q.Refresh} {
		if b != nil {
			n++
		}
	}
	return n
}

// A changed is the answer to a change that was made.
type changed struct {
	Subscribed   *subscribed `json:"subscribed,omitempty"`
	Unsubscribed string      `json:"unsubscribed,omitempty"`
	Refreshed    *refreshed  `json:"refreshed,omitempty"`
	gapMessage
}

type subscribed struct {
	Topic string `json:"topic"`
	Last  string `json:"last"` // the position after which the events begin
}

type refreshed struct {
	ExpiresIn int64 `json:"expires_in"`
}

// expiresIn returns the seconds after which a client expires, or 0.
func expiresIn(expires int64) int64 {
	if expires == 0 {
		return 0
	}
	return max(expires-time.Now().Unix(), 1)
}

// A trunk is a connection whose topics can be changed.
type trunk interface {
	Client
	give(e *event.Event, filter string) error // gives it an event of a topic that was added
	tell(g event.Gap) error
}

// A branch is a topic that was added to an open connection. It is a subscriber of its own, so that the
// other topics of the connection do not notice when it comes and goes, and so that events that those
// match too come for each. It has an id of its own, because orders are for clients that had theirs
// before; Root has that of the connection.
type branch struct {
	hub.Subscriber
	trunk
	root  *hub.Subscriber
	begin func() // gives the client the answer, unless it has it

	mu     sync.Mutex
	missed backlog
}

// Root returns the subscriber whose connection it is.
func (b *branch) Root() *hub.Subscriber { return b.root }

// Send implements sink.
func (b *branch) Send(topic int, e *event.Event) bool {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	err := stream.ErrQueueFull
	if b.missed == nil || b.trunk.tell(b.missed.gap(&b.Subscriber)) == nil {
		b.missed = nil
		err = b.give(e, b.Topics[topic].Filter())
	}
	b.note(err, topic, e.Alone())
	return true
}

// Gap implements sink.
func (b *branch) Gap(topic int, reason string, missed event.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := event.Gap{Reason: reason, Missed: []event.Miss{b.MissOf(topic, missed)}}
	b.note(b.trunk.tell(g), topic, missed)
}

// note notes that the client was not told of a span, if err says so. The caller holds b.mu.
func (b *branch) note(err error, topic int, missed event.Span) {
	if errors.Is(err, stream.ErrQueueFull) {
		b.missed.add(topic, missed)
	}
}

// The additions of a connection are the topics that were added to it.
type additions struct {
	mu       sync.Mutex         // held by a change
	branches map[string]*branch // by topic
}

// An additionSet has those of the connections that have some, or that a change is under way for.
type additionSet struct {
	mu  sync.Mutex
	all map[*hub.Subscriber]*additions
}

// of returns the additions of a connection. If there are none, it makes them if create is set, and
// otherwise returns nil.
func (s *additionSet) of(root *hub.Subscriber, create bool) *additions {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.all[root]
	if a == nil && create {
		if s.all == nil {
			s.all = make(map[*hub.Subscriber]*additions)
		}
		a = &additions{branches: make(map[string]*branch)}
		s.all[root] = a
	}
	return a
}

// lock begins a change of a connection, after those that are under way. prune must follow.
func (s *additionSet) lock(root *hub.Subscriber) *additions {
	for {
		a := s.of(root, true)
		a.mu.Lock()
		if s.of(root, false) == a {
			return a
		}
		a.mu.Unlock() // another change has left none
	}
}

// prune is called when a change or a connection has ended. If the connection has, its additions leave
// the hub. A change that is under way does that at its own end.
func (t *Server) prune(root *hub.Subscriber) {
	a := t.additions.of(root, false)
	if a == nil || !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if !t.Hub.Clients.Has(root) {
		for topic, b := range a.branches {
			t.Hub.Leave(&b.Subscriber)
			delete(a.branches, topic)
		}
	}
	if len(a.branches) == 0 {
		t.additions.mu.Lock()
		delete(t.additions.all, root)
		t.additions.mu.Unlock()
	}
}

// A changer is a connection for the time of a change.
type changer struct {
	t         *Server
	root      *hub.Subscriber
	rights    *access.Rights
	client    string // for the limits
	transport string // as webhooks name it
	remote    string
	// began, if not nil, gives the client the answer before the first event of a new topic.
	began func(changed)
	// renewed, if not nil, is called with the rights of a new token.
	renewed func(*access.Rights)
}

// carryOut makes a change. It returns the answer, or why the change is refused. If err is not nil and
// the client has the answer, it has lost events of a topic, and the connection must end.
func (c *changer) carryOut(ctx context.Context, q *change) (answer changed, refused *access.Denial, err error) {
	a := c.t.additions.lock(c.root)
	defer func() {
		a.mu.Unlock()
		c.t.prune(c.root)
	}()
	if !c.t.Hub.Clients.Has(c.root) {
		return answer, &access.Denial{Status: http.StatusNotFound, Text: "the connection has ended"}, nil
	}
	switch {
	case q.Subscribe != nil:
		return c.subscribe(ctx, a, q.Subscribe)
	case q.Unsubscribe != nil:
		answer.Unsubscribed, refused = c.unsubscribe(a, q.Unsubscribe)
	default:
		answer.Refreshed, refused = c.refresh(ctx, a, q.Refresh)
	}
	return answer, refused, nil
}

// malformed is the answer to a change that has something wrong.
func malformed(err error) *access.Denial {
	return &access.Denial{Status: http.StatusBadRequest, Text: err.Error()}
}

var errMalformed = errors.New("malformed message")

// parseWant parses a topic with which a connection goes on.
func (c *changer) parseWant(b json.RawMessage) (w hub.Want, err error) {
	var q struct {
		Topic, After string
		Last         int
	}
	if json.Unmarshal(b, &q) != nil {
		return w, errMalformed
	}
	if err := c.t.checkWanted(q.Topic, true); err != nil {
		return w, err
	}
	var ids []string
	if q.After != "" {
		ids = append(ids, q.After)
	}
	positions, err := parseAfter(ids, 1)
	switch {
	case err != nil:
		return w, err
	case q.Last < 0 || q.Last > maxLast:
		return w, fmt.Errorf("last: want a number from 1 to %d", maxLast)
	}
	w = hub.Want{Filter: q.Topic, Last: q.Last, Fresh: !c.t.Access.HasHistory(q.Topic)}
	if len(positions) > 0 {
		w.After = positions[0]
	}
	if w.Fresh && (w.Last > 0 || w.After.Epoch == event.Beginning) {
		return w, noHistory(q.Topic)
	}
	return w, nil
}

// wanted returns the topics that the connection has.
func (c *changer) wanted(a *additions) (topics []string) {
	for i := range c.root.Topics {
		if c.t.Hub.Wants(c.root, i) {
			topics = append(topics, c.root.Topics[i].Filter())
		}
	}
	for topic, b := range a.branches {
		if c.t.Hub.Wants(&b.Subscriber, 0) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// subscribe adds a topic.
func (c *changer) subscribe(ctx context.Context, a *additions, b json.RawMessage) (
	answer changed, refused *access.Denial, err error) {
	t := c.t
	want, err := c.parseWant(b)
	if err != nil {
		return answer, malformed(err), nil
	}
	if f := t.Access.PermitSubscribe(c.rights, c.root.User, want.Filter, c.client); f != nil {
		return answer, f, nil
	}
	switch topics := c.wanted(a); {
	case slices.Contains(topics, want.Filter):
		return answer, malformed(fmt.Errorf("topic %q: twice", want.Filter)), nil
	case len(topics) >= event.MaxTopics:
		return answer, malformed(fmt.Errorf("more than %d topics", event.MaxTopics)), nil
	}
	from := webhook.NewRequest(t.Hub.Clients.Name(c.root.ID), c.transport, c.root.User)
	if f := t.Access.AskSubscribe(ctx, from, want.Filter); f != nil {
		return answer, f, nil
	}
	wants := []hub.Want{want}
	gap, err := t.Hub.Locate(ctx, wants)
	if err != nil {
		return answer, access.Later(err), nil
	}
	f, err := t.Hub.Acquire(ctx, want.Filter) // so that what may fail fails before the answer
	if err != nil {
		return answer, access.Later(err), nil
	}
	defer t.Hub.Release(f)
	if gone := a.branches[want.Filter]; gone != nil { // an order has ended it
		t.Hub.Leave(&gone.Subscriber)
	}
	one := &branch{trunk: c.root.To.(trunk), root: c.root}
	one.To, one.ID, one.Identity = one, t.Hub.Clients.NewID(), c.root.Identity
	a.branches[want.Filter] = one
	answer.Subscribed = &subscribed{want.Filter, wants[0].After.String()}
	answer.add(gap)
	one.begin = sync.OnceFunc(func() {
		if c.began != nil {
			c.began(answer)
		}
	})
	if !f.Live() { // whose events have no positions: a client that was answered must get all that come
		one.begin()
	}
	if err := t.Hub.Join(ctx, &one.Subscriber, wants); err != nil {
		t.Hub.Leave(&one.Subscriber)
		delete(a.branches, want.Filter)
		return answer, access.Later(err), err
	}
	one.begin()
	return answer, nil, nil
}

// unsubscribe ends a topic.
func (c *changer) unsubscribe(a *additions, b json.RawMessage) (topic string, refused *access.Denial) {
	var q struct{ Topic string }
	if json.Unmarshal(b, &q) != nil {
		return "", malformed(errMalformed)
	}
	if one := a.branches[q.Topic]; one != nil && c.t.Hub.Wants(&one.Subscriber, 0) {
		c.t.Hub.Leave(&one.Subscriber)
		delete(a.branches, q.Topic)
		return q.Topic, nil
	}
	for i := range c.root.Topics {
		if c.root.Topics[i].Filter() != q.Topic || !c.t.Hub.Wants(c.root, i) {
			continue
		}
		// An event of several topics of a request has come for the first of them alone.
		for j := i + 1; j < len(c.root.Topics); j++ {
			if other := c.root.Topics[j].Filter(); event.Overlap(q.Topic, other) && c.t.Hub.Wants(c.root, j) {
				return "", &access.Denial{Status: http.StatusConflict,
					Text: fmt.Sprintf("topic %q: its events are those of %q too", q.Topic, other)}
			}
		}
		c.t.Hub.Unsubscribe(c.root, i)
		return q.Topic, nil
	}
	return "", &access.Denial{Status: http.StatusNotFound, Text: fmt.Sprintf("topic %q: not subscribed", q.Topic)}
}

// refresh makes the connection go on with a new token, which must allow all that it has.
func (c *changer) refresh(ctx context.Context, a *additions, b json.RawMessage) (*refreshed, *access.Denial) {
	var q struct{ Token string }
	if json.Unmarshal(b, &q) != nil {
		return nil, malformed(errMalformed)
	}
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: socketPath}, RemoteAddr: c.remote,
		Header: http.Header{"Authorization": {"Bearer " + q.Token}}}).WithContext(ctx)
	rights, expires, f := c.t.Access.Renew(r, c.root, c.client, c.transport)
	if f != nil {
		return nil, f
	}
	for _, topic := range c.wanted(a) {
		if !c.t.Access.MayRead(rights, c.root.User, topic) {
			return nil, access.NotAllowed(topic)
		}
	}
	c.root.Renew(expires)
	if c.renewed != nil {
		c.renewed(rights)
	}
	return &refreshed{expiresIn(expires)}, nil
}

// maxChange bounds the bytes of a request of serveChange.
const maxChange = 16 << 10

// serveChange answers a POST that changes a connection of Server-Sent Events. Its body is a change, and
// its token must have the user of the connection, because ids are no secret.
func (t *Server) serveChange(w http.ResponseWriter, r *http.Request) {
	access.AllowOrigin(w, r, t.Access.Config.Origins)
	if !t.Access.Config.MayChange(r) {
		t.Access.Refuse(w, r, &access.Denial{Status: http.StatusForbidden, Text: "this origin may not change connections"})
		return
	}
	g, ok := t.Access.Authorize(w, r)
	if !ok {
		return
	}
	ctx, done, ok := t.Access.BeginChange(w, r)
	if !ok {
		return
	}
	defer done()
	body, f := access.ReadBody(w, r, maxChange)
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	var q change
	if json.Unmarshal(body, &q) != nil || q.count() != 1 {
		t.Access.Refuse(w, r, malformed(errMalformed))
		return
	}
	s, f := t.changeable(r.URL.Query().Get("client"), g.Subject)
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	c := changer{t: t, root: s, rights: t.Access.RightsOf(&g), transport: "sse", remote: r.RemoteAddr,
		client: t.Access.KeyOf(g.Subject, r.RemoteAddr)}
	answer, f, _ := c.carryOut(ctx, &q)
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(event.Encode(answer), '\n'))
}

// changeable returns a client of Server-Sent Events whose connection a user may change.
func (t *Server) changeable(name, user string) (*hub.Subscriber, *access.Denial) {
	s := t.Hub.Clients.Find(name)
	if s == nil {
		return nil, &access.Denial{Status: http.StatusNotFound, Text: "no such client on this node"}
	}
	e, ok := s.To.(*eventStream)
	switch {
	case !ok || e.form != event.FormEnvelope:
		return nil, malformed(errors.New("want a client of Server-Sent Events with format=json"))
	case user == "" || user != s.User:
		return nil, &access.Denial{Status: http.StatusForbidden, Text: "the client is of another user"}
	case !e.hasJoined():
		return nil, access.Later(errJoining)
	}
	return s, nil
}

var errJoining = errors.New("gateway: the client gets what it has missed")
