package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/keys"
	"github.com/socknotify/socknotify/gateway/internal/presence"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/transport"
)

// watcher returns the query's token of a client that may know who is there.
func watcher(t *testing.T, name string, presence ...string) string {
	t.Helper()
	c := keys.Claims{RegisteredClaims: jwt.RegisteredClaims{Subject: name}}
	c.Push.Presence = presence
	return "&token=" + userToken(t, c)
}

// setPresence sets how often rosters are brought up to date and nodes say that they are there,
// until the test ends.
func setPresence(t *testing.T, every, say time.Duration) {
	interval, beat, ttl, patience := presence.Interval, presence.Beat, presence.TTL, presence.Patience
	t.Cleanup(func() {
		presence.Interval, presence.Beat = interval, beat
		presence.TTL, presence.Patience = ttl, patience
	})
	presence.Interval, presence.Beat = every, say
	presence.TTL, presence.Patience = max(20*say, 2*time.Second), 500*time.Millisecond
}

// isRoster reports whether a feed is that of a topic's presence.
func isRoster(f *hub.Feed) bool { _, ok := event.PresenceOf(f.Filter()); return ok }

// present asks who is on a topic, and returns the users.
func (s *site) present(topic string, header ...string) (users []string) {
	s.t.Helper()
	status, body := s.request("GET", "/presence?topic="+topic, "", header...)
	if status != http.StatusOK {
		s.t.Fatalf("%d %s", status, body)
	}
	var a members
	must(s.t, json.Unmarshal([]byte(body), &a))
	for _, m := range a.Members {
		users = append(users, m.User)
	}
	slices.Sort(users)
	return users
}

// A listed is a member of a topic, as clients get it.
type listed struct{ Client, User string }

// members are those of a topic, as GET /presence answers.
type members struct{ Members []listed }

// presenceEvent is any event of presence.
type presenceEvent struct {
	Members     []listed
	Join, Leave *listed
}

// moves reads events of presence of a WebSocket until one has a join or leave, and returns it as
// text.
func moves(t *testing.T, r reader) string {
	t.Helper()
	for {
		m, err := r.next()
		must(t, err)
		if !strings.HasPrefix(m.Topic, event.PresencePrefix) {
			continue
		}
		var e presenceEvent
		must(t, json.Unmarshal([]byte(m.Data), &e))
		switch {
		case e.Join != nil:
			return "+" + e.Join.User
		case e.Leave != nil:
			return "-" + e.Leave.User
		}
	}
}

// Clients of all nodes are members of their topics, by WebSocket and Server-Sent Events. A watcher
// gets who is there, and then who joins and leaves.
func TestPresence(t *testing.T) {
	setPresence(t, time.Hour, time.Second) // events alone must do
	a, b := guarded(t, Config{Presence: []string{"room.*"}})
	backend := backendToken(t)
	alice, err := openSSE(a.url, "topic=room.1&topic=other&token="+user(t, "alice"), "")
	must(t, err)
	defer alice.close()
	bob, err := openWS(b.url, "topic=room.1&token="+user(t, "bob"))
	must(t, err)
	defer bob.close()
	wild, err := openWS(b.url, "topic=room.*&topic=other&token="+user(t, "wildcard"))
	must(t, err)
	defer wild.close()
	until(t, "all have joined", func() bool { return a.members()+b.members() == 5 })
	for _, s := range []*site{a, b} {
		until(t, "both are present", func() bool {
			return slices.Equal(s.present("room.1", backend...), []string{"alice", "bob"})
		})
	}
	if got := a.present("room.2", backend...); len(got) != 0 {
		t.Errorf("in another room: %v", got)
	}
	w, err := openWS(b.url, "topic=$presence.room.1&topic=room.1"+watcher(t, "carol", "room.*"))
	must(t, err)
	defer w.close()
	m, err := w.next()
	must(t, err)
	var first presenceEvent
	must(t, json.Unmarshal([]byte(m.Data), &first))
	if m.Topic != "$presence.room.1" || m.ID != "" || len(first.Members) != 2 {
		t.Errorf("%+v", m)
	}
	for _, p := range first.Members {
		if p.User == "bob" && p.Client != bob.first.Client {
			t.Errorf("%+v, want %s", p, bob.first.Client)
		}
	}
	steps := []struct {
		do   func()
		want string
	}{
		{func() {}, "+carol"},
		{func() { bob.close() }, "-bob"},
		{func() {
			dave, err := openSSE(a.url, "topic=room.1&token="+user(t, "dave"), "")
			must(t, err)
			t.Cleanup(dave.close)
		}, "+dave"},
		{func() {
			a.order("/unsubscribe", url.Values{"user": {"alice"}, "topic": {"room.1"}}, backend)
		}, "-alice"},
		{func() { a.order("/disconnect", url.Values{"user": {"dave"}}, backend) }, "-dave"},
	}
	for _, s := range steps {
		s.do()
		if got := moves(t, w); got != s.want {
			t.Errorf("got %s, want %s", got, s.want)
		}
	}
	a.publish("room.1", "hello")
	expect(t, w, message{Topic: "room.1", Data: "hello"})
	w.close()
	until(t, "the roster is gone", func() bool {
		return !slices.ContainsFunc(b.hub.All(), func(f *hub.Feed) bool { return isRoster(f) })
	})
}

// A node that ends without a word has no members after a while, and watchers get their leaves. One
// whose events were lost is right again as well.
func TestPresenceAfterKill(t *testing.T) {
	setPresence(t, 50*time.Millisecond, 20*time.Millisecond)
	config := Config{Presence: []string{"room.>"}, Authorize: JWT("HS256", secret)}
	a := newSite(t, t.TempDir(), config)
	conn, err := nats.Connect("", nats.InProcessServer(a.node.Server))
	must(t, err)
	b := newSiteOn(t, &Node{Conn: conn}, config)
	var all []reader
	for i := range 3 {
		r, err := openSSE(b.url, "topic=room.1&token="+user(t, fmt.Sprint("user", i)), "")
		must(t, err)
		defer r.close()
		all = append(all, r)
	}
	until(t, "all have joined", func() bool { return b.members() == 3 })
	w, err := openWS(a.url, "topic=$presence.room.1"+watcher(t, "w", "room.1"))
	must(t, err)
	defer w.close()
	known := map[string]bool{}
	note := func(m message) {
		var e presenceEvent
		must(t, json.Unmarshal([]byte(m.Data), &e))
		for _, p := range e.Members {
			known[p.User] = true
		}
		if e.Join != nil {
			known[e.Join.User] = true
		}
		if e.Leave != nil {
			delete(known, e.Leave.User)
		}
	}
	for len(known) < 3 {
		m, err := w.next()
		must(t, err)
		note(m)
	}
	// The watcher's node misses that one leaves, and finds out by asking.
	for _, f := range a.hub.All() {
		if isRoster(f) {
			must(t, f.Sub.Unsubscribe())
		}
	}
	must(t, a.node.Conn.Flush())
	all[0].close()
	for known["user0"] {
		m, err := w.next()
		must(t, err)
		note(m)
	}
	// The other node is as a killed one: it says nothing, and answers nothing.
	conn.Close()
	for len(known) > 0 {
		m, err := w.next()
		must(t, err)
		note(m)
	}
	if got := a.present("room.1", backendToken(t)...); len(got) != 0 {
		t.Errorf("%v are left", got)
	}
}

// Presence needs a grant of its own, for the topic, and a topic that has it.
func TestPresenceRefused(t *testing.T) {
	a, _ := guarded(t, Config{Presence: []string{"room.*", "live.>"}})
	off := newSite(t, t.TempDir(), Config{})
	none := "&token=" + user(t, "alice") // may read everything, but not who is there
	some := watcher(t, "bob", "room.1")
	for _, c := range []struct {
		site   *site
		query  string
		status int
	}{
		{a, "topic=room.1", 401},
		{a, "topic=room.1" + none, 403},
		{a, "topic=room.1" + some, 200},
		{a, "topic=room.2" + some, 403},
		{a, "topic=other" + some, 400},
		{a, "topic=room.*" + some, 400},
		{a, "topic=" + some, 400},
		{a, "topic=$control" + some, 400},
		{a, "topic=$presence.room.1" + some, 400},
		{off, "topic=room.1", 400},
	} {
		status, body := c.site.request("GET", "/presence?"+c.query, "")
		if status != c.status {
			t.Errorf("/presence?%.40s: %d %s, want %d", c.query, status, body, c.status)
		}
		query := strings.Replace(c.query, "topic=", "topic=$presence.", 1)
		r, err := openWS(c.site.url, query)
		if (err == nil) != (c.status == 200) {
			t.Errorf("/socket?%.40s: %v, want %d", query, err, c.status)
		}
		if err == nil {
			r.close()
		}
		forged := `{"join":{"client":"x-1"}}`
		if status, _ := c.site.request("POST", "/publish?"+query, forged); status < 400 {
			t.Errorf("an event of presence was forged by %.40s: %d", query, status)
		}
	}
	if status, _ := a.request("GET", "/poll?topic=$presence.room.1"+some, ""); status != 400 {
		t.Errorf("by long polling: %d", status)
	}
	all, err := openWS(a.url, "topic=>&topic=live.>"+none)
	must(t, err)
	defer all.close()
	until(t, "it has joined", func() bool { return a.members() == 2 })
	r, err := openSSE(a.url, "topic=room.1&topic=live.x&token="+user(t, "m"), "")
	must(t, err)
	defer r.close()
	until(t, "one has joined", func() bool { return a.members() == 4 })
	a.publish("live.x", "first")
	expect(t, all, message{Topic: "live.x", Data: "first"}) // and no event of presence
	a.publish("x", "second")
	expect(t, all, message{Topic: "x", Data: "second"})
}

// The members of all nodes are counted, without their names.
func TestPresenceCount(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	config := Config{Presence: []string{"room.*"}}
	a, b := newSiteOn(t, node, config), newSiteOn(t, node, config)
	count := func(want string) {
		t.Helper()
		for _, s := range []*site{a, b} {
			got := ""
			defer func() {
				if t.Failed() {
					t.Logf("the answer is %s", got)
				}
			}()
			until(t, "the count is "+want, func() bool {
				_, got = s.request("GET", "/presence?topic=room.1&count=true", "")
				return got == want
			})
		}
	}
	count("{\"count\":0}\n")
	for i := range 3 {
		r, err := openSSE([]*site{a, b}[i%2].url, "topic=room.1", "")
		must(t, err)
		defer r.close()
	}
	last, err := openWS(b.url, "topic=room.1&topic=room.2")
	must(t, err)
	defer last.close()
	count("{\"count\":4}\n")
	last.close()
	count("{\"count\":3}\n")
	if status, body := a.request("GET", "/presence?topic=room.1&count=yes", ""); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
	if status, body := a.request("GET", "/presence?topic=other&count=true", ""); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
}

// Topics without presence cost nothing: no message is sent for their clients.
func TestPresenceElsewhere(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Presence: []string{"room.*"}})
	sub, err := s.config.Conn.SubscribeSync(event.LivePrefix + event.PresencePrefix + ">")
	must(t, err)
	for _, topic := range []string{"other", "room.*", "room", "live.room"} {
		r, err := openSSE(s.url, "topic=x&topic="+topic, "")
		must(t, err)
		r.close()
	}
	until(t, "all have left", func() bool { return s.Stats().Conns == 0 })
	r, err := openSSE(s.url, "topic=room.1", "")
	must(t, err)
	defer r.close()
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	must(t, err)
	if m.Subject != event.LivePrefix+"$presence.room.1" {
		t.Errorf("got %s", m.Subject)
	}
}

// A gatedSink takes events when its gate is open.
type gatedSink struct {
	waits chan struct{} // gets a value when the sink waits
	gate  chan struct{} // closed when it is open
}

func (g *gatedSink) Send(int, *event.Event) bool            { return true }
func (g *gatedSink) Gap(int, string, event.Span)            {}
func (g *gatedSink) End(*transport.Server, error)           {}
func (g *gatedSink) Unsubscribed(*transport.Server, string) {}
func (g *gatedSink) Flush(ctx context.Context) error {
	select {
	case g.waits <- struct{}{}:
	default:
	}
	select {
	case <-g.gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A question ends when the client that has asked it has gone, and not when NATS answers.
func TestQuestionEndsWithItsRequest(t *testing.T) {
	setPresence(t, time.Hour, time.Hour)
	presence.Patience = time.Hour // with the node that does not answer
	s := newSite(t, t.TempDir(), Config{Presence: []string{"a"}})
	before := stream.RequestTimeout
	stream.RequestTimeout = time.Hour
	t.Cleanup(func() { stream.RequestTimeout = before })
	s.presence.Heard("silent")
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan bool, 1)
	go func() { answered <- s.get(ctx, "/presence?topic=a") }()
	asking := func() bool {
		s.hub.Mu.RLock()
		defer s.hub.Mu.RUnlock()
		return len(s.hub.Starting) == 1
	}
	until(t, "the nodes are asked", asking)
	cancel()
	if <-answered {
		t.Error("it was answered")
	}
	s.access.Opening.Wait()
	if !asking() {
		t.Error("the question has ended, which other clients may wait for")
	}
}

// A client is unsubscribed from a topic, or leaves, while it still gets what it has missed of
// another one. The others do not learn of it in that topic, neither by an event nor by the list.
func TestPresenceOfUnfinishedJoin(t *testing.T) {
	setPresence(t, time.Hour, time.Second) // events alone must do
	for _, topic := range []string{"room.1", "room.2"} {
		s := newSite(t, t.TempDir(), Config{Presence: []string{"room.*"}, Authorize: JWT("HS256", secret)})
		backend := backendToken(t)
		s.publish("room.2", "missed")
		w, err := openWS(s.url, "topic=$presence.room.1&topic=$presence.room.2"+watcher(t, "carol", "room.*"))
		must(t, err)
		defer w.close()
		for range 2 { // who is there: it has joined both
			_, err := w.next()
			must(t, err)
		}
		to := &gatedSink{make(chan struct{}, 1), make(chan struct{})}
		ghost := &hub.Subscriber{To: to, ID: s.hub.Clients.NewID(), Identity: &hub.Identity{User: "ghost"}}
		wants := []hub.Want{{Filter: "room.1", After: event.Position{Epoch: s.hub.Epoch, Seq: 1}},
			{Filter: "room.2", After: event.Position{Epoch: s.hub.Epoch, Seq: 0}}}
		joined := make(chan error, 1)
		go func() { joined <- s.hub.Join(t.Context(), ghost, wants) }()
		<-to.waits // room.2 is read, and room.1 has the client
		s.transports.Unsubscribe(ghost, topic)
		if got := s.present("room.1", backend...); len(got) != 0 {
			t.Errorf("during the join: %v", got)
		}
		close(to.gate)
		must(t, <-joined)
		other := "room.1"
		if topic == other {
			other = "room.2"
		}
		if got := moves(t, w); got != "+ghost" {
			t.Errorf("after the join: %s", got)
		}
		if got := s.present(topic, backend...); len(got) != 0 {
			t.Errorf("%s has %v, who was unsubscribed", topic, got)
		}
		if got := s.present(other, backend...); !slices.Equal(got, []string{"ghost"}) {
			t.Errorf("%s has %v", other, got)
		}
		s.hub.Leave(ghost)
		if got := moves(t, w); got != "-ghost" {
			t.Errorf("after the end: %s", got)
		}
		dave, err := openWS(s.url, "topic="+topic+"&token="+user(t, "dave"))
		must(t, err)
		if got := moves(t, w); got != "+dave" {
			t.Errorf("the next event is %s", got)
		}
		dave.close()
	}
}
