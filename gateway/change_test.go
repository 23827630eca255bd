package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/keys"
)

// A changeMessage is any message to a WebSocket, or the answer to a change of Server-Sent Events.
type changeMessage struct {
	Ref          uint64
	Topic, For   string
	ID, Data     string
	Gap          string
	Missed       []event.Miss
	Subscribed   *struct{ Topic, Last string }
	Unsubscribed string
	Refreshed    *struct {
		ExpiresIn int64 `json:"expires_in"`
	}
	Published *Receipt
	Error     *struct {
		Status int
		Text   string
	}
	ExpiresIn *int64 `json:"expires_in"`
}

// any returns the next message.
func (r *wsReader) any(t testing.TB) (m changeMessage) {
	t.Helper()
	b, err := r.read()
	must(t, err)
	must(t, json.Unmarshal(b, &m))
	return m
}

var lastRef uint64 // of all tests, one after the other

// change sends a change, and returns the answer and the events that came before it.
func (r *wsReader) change(t *testing.T, what string, args ...any) (answer changeMessage, before []changeMessage) {
	t.Helper()
	lastRef++
	r.send(t, fmt.Sprintf(`{"ref":%d,%s}`, lastRef, fmt.Sprintf(what, args...)))
	for {
		m := r.any(t)
		if m.Ref == lastRef {
			return m, before
		}
		before = append(before, m)
	}
}

// subscribe adds a topic, and returns the position where it begins.
func (r *wsReader) subscribe(t *testing.T, topic string) string {
	t.Helper()
	m, _ := r.change(t, `"subscribe":{"topic":%q}`, topic)
	if m.Subscribed == nil || m.Subscribed.Topic != topic {
		t.Fatalf("subscribe %s: %+v", topic, m)
	}
	return m.Subscribed.Last
}

// refused checks that a change is refused, and that the client goes on.
func (r *wsReader) refused(t *testing.T, status int, what string, args ...any) {
	t.Helper()
	m, _ := r.change(t, what, args...)
	if m.Error == nil || m.Error.Status != status || m.Error.Text == "" {
		t.Errorf("%s: %+v, want %d", fmt.Sprintf(what, args...), m, status)
	}
}

// Topics come and go on an open connection. A topic that comes late begins where it is asked to, and
// an event of several topics comes for each that was added.
func TestChangeTopics(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	first := s.publish("b", "1")
	second := s.publish("b", "2")
	s.publish("b", "3")
	r, err := openWS(s.url, "topic=a")
	must(t, err)
	defer r.close()
	want := func(topic, tag, data string) {
		t.Helper()
		if m := r.any(t); m.Topic != topic || m.For != tag || m.Data != data {
			t.Fatalf("got %+v, want %s for %q: %s", m, topic, tag, data)
		}
	}
	m, _ := r.change(t, `"subscribe":{"topic":"b","after":%q}`, first)
	if m.Subscribed == nil || m.Subscribed.Last != first || m.Gap != "" {
		t.Fatalf("%+v", m)
	}
	want("b", "b", "2")
	want("b", "b", "3")
	r.subscribe(t, "*")
	r.subscribe(t, "live.x")
	s.publish("live.x", "4")
	want("live.x", "live.x", "4")
	s.publish("b", "5")
	got := []string{r.any(t).For, r.any(t).For}
	if slices.Sort(got); !slices.Equal(got, []string{"*", "b"}) {
		t.Errorf("it came for %q", got)
	}
	s.publish("a", "6")
	got = []string{r.any(t).For, r.any(t).For}
	if slices.Sort(got); !slices.Equal(got, []string{"", "*"}) {
		t.Errorf("it came for %q", got)
	}
	for _, topic := range []string{"*", "a"} {
		if m, _ := r.change(t, `"unsubscribe":{"topic":%q}`, topic); m.Unsubscribed != topic {
			t.Errorf("%+v", m)
		}
	}
	until(t, "two are left", func() bool { return s.members() == 2 && s.Stats().Topics == 2 })
	s.publish("a", "unwanted")
	s.publish("b", "7")
	want("b", "b", "7")
	at := r.subscribe(t, "a") // again
	if p, err := event.ParsePositions(at); err != nil || p[0].Seq == 0 {
		t.Errorf("it begins after %q", at)
	}
	s.publish("a", "8")
	want("a", "a", "8")
	if m, _ := r.change(t, `"subscribe":{"topic":"c.d","after":"other-7"}`); m.Gap != event.GapEpoch ||
		len(m.Missed) != 1 || m.Missed[0].Topic != "c.d" || m.Missed[0].After != "other-7" || m.Missed[0].Last == "" {
		t.Errorf("%+v", m)
	}
	if m, _ := r.change(t, `"unsubscribe":{"topic":"b"}`); m.Unsubscribed != "b" {
		t.Errorf("%+v", m)
	}
	if m, _ := r.change(t, `"subscribe":{"topic":"b","last":2}`); m.Subscribed == nil || m.Subscribed.Last == second {
		t.Errorf("%+v", m)
	}
	want("b", "b", "5")
	want("b", "b", "7")
	if a := r.ask(t, 1000, "a", "9", ""); a.Published == nil {
		t.Errorf("%+v", a)
	}
}

// A change that is malformed, not allowed, or beyond a limit is answered, and changes nothing.
func TestChangeRefused(t *testing.T) {
	b, hooks := newBackend(t)
	hooks.Connect = ""
	s := newSite(t, t.TempDir(), Config{Presence: []string{"room.*"}, Webhooks: hooks,
		Authorize: func(r *http.Request) (Grant, error) {
			if Token(r) == "" {
				return Grant{}, ErrNoToken
			}
			return Grant{Read: []string{"a.*", "live.*", "b"}, Presence: []string{"room.*"}, Subject: "alice"}, nil
		}})
	r, err := openWS(s.url, "token=x&topic=a.0&topic=a.*&topic=live.1&topic=live.*")
	must(t, err)
	defer r.close()
	b.does("/subscribe", nil)
	r.refused(t, 403, `"subscribe":{"topic":"c"}`)
	r.refused(t, 403, `"subscribe":{"topic":"*"}`)
	r.refused(t, 403, `"subscribe":{"topic":"live.>"}`)
	r.refused(t, 400, `"subscribe":{"topic":"$presence.other"}`)
	for _, q := range []string{`{}`, `5`, `null`, `[]`, `{"topic":7}`, `{"topic":""}`, `{"topic":"a..b"}`,
		`{"topic":"$control"}`, `{"topic":"b","after":"x"}`, `{"topic":"b","after":"x-1.2"}`,
		`{"topic":"b","last":-1}`, `{"topic":"b","last":1001}`, `{"topic":"a.0"}`, `{"topic":"live.*"}`} {
		r.refused(t, 400, `"subscribe":%s`, q)
	}
	r.refused(t, 400, `"subscribe":{"topic":"b"},"unsubscribe":{"topic":"a.0"}`)
	r.refused(t, 400, `"subscribe":{"topic":"b"},"publish":{"topic":"b"}`)
	r.refused(t, 400, `"unsubscribe":5`)
	r.refused(t, 400, `"refresh":5`)
	r.refused(t, 401, `"refresh":{}`)
	r.refused(t, 404, `"unsubscribe":{"topic":"b"}`)
	r.refused(t, 409, `"unsubscribe":{"topic":"a.0"}`) // its events have come for a.0 alone
	r.subscribe(t, "$presence.room.1")
	b.says("/subscribe", `{"error":{"code":403,"message":"not for you"}}`)
	r.refused(t, 403, `"subscribe":{"topic":"b"}`)
	b.does("/subscribe", func(w http.ResponseWriter) { w.WriteHeader(500) })
	r.refused(t, 503, `"subscribe":{"topic":"b"}`)
	b.does("/subscribe", nil)
	for i := range event.MaxTopics - 5 {
		r.subscribe(t, fmt.Sprintf("a.%d", i+1))
	}
	r.refused(t, 400, `"subscribe":{"topic":"b"}`)
	if m, _ := r.change(t, `"unsubscribe":{"topic":"a.1"}`); m.Unsubscribed != "a.1" {
		t.Errorf("%+v", m)
	}
	r.subscribe(t, "b")
	s.publish("b", "still here")
	if m := r.any(t); m.Data == "" && m.Topic != "$presence.room.1" {
		t.Errorf("%+v", m)
	}
}

// The rate of a client counts topics that are added.
func TestChangeRate(t *testing.T) {
	began := time.Now()
	s := newSite(t, t.TempDir(), Config{SubscribeRate: Rate{PerSecond: 1, Burst: 2}, now: func() time.Time { return began }})
	r, err := openWS(s.url, "topic=a")
	must(t, err)
	defer r.close()
	r.subscribe(t, "b")
	r.refused(t, 429, `"subscribe":{"topic":"c"}`)
	r.refused(t, 429, `"refresh":{"token":""}`)
}

// Three topics that are added one after the other are three joins, and no leave. The backend is
// asked once for each, and the id of the connection stays.
func TestChangePresence(t *testing.T) {
	setPresence(t, time.Hour, time.Second) // events alone must do
	b, hooks := newBackend(t)
	a := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret), Presence: []string{"room.*"}, Webhooks: hooks})
	other := newSiteOn(t, a.node, Config{Authorize: JWT("HS256", secret), Presence: []string{"room.*"}})
	w, err := openWS(other.url, "topic=$presence.room.1&topic=$presence.room.2&topic=$presence.room.3"+watcher(t, "carol", "room.*"))
	must(t, err)
	defer w.close()
	until(t, "the watcher has joined", func() bool { return other.members() == 3 })
	r, err := openWS(a.url, "token="+user(t, "alice"))
	must(t, err)
	b.expect("/connect websocket alice")
	var got []string
	move := func() {
		m := w.any(t)
		for !strings.Contains(m.Data, "join") && !strings.Contains(m.Data, "leave") {
			m = w.any(t)
		}
		var e presenceEvent
		must(t, json.Unmarshal([]byte(m.Data), &e))
		who, sign := e.Join, "+"
		if who == nil {
			who, sign = e.Leave, "-"
		}
		if who.Client != r.first.Client || who.User != "alice" {
			t.Errorf("%s has moved, want %s", who.Client, r.first.Client)
		}
		got = append(got, sign+strings.TrimPrefix(m.Topic, "$presence."))
	}
	for i := range 3 {
		r.subscribe(t, fmt.Sprintf("room.%d", i+1))
		move()
	}
	b.expect("/subscribe websocket alice room.1", "/subscribe websocket alice room.2", "/subscribe websocket alice room.3")
	for i := range 3 {
		if users := other.present(fmt.Sprintf("room.%d", i+1), backendToken(t)...); !slices.Equal(users, []string{"alice"}) {
			t.Errorf("present: %q", users)
		}
	}
	if m, _ := r.change(t, `"unsubscribe":{"topic":"room.2"}`); m.Unsubscribed == "" {
		t.Errorf("%+v", m)
	}
	move()
	b.expect()
	r.close()
	move()
	move()
	slices.Sort(got[4:])
	if want := []string{"+room.1", "+room.2", "+room.3", "-room.2", "-room.1", "-room.3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	until(t, "the backend is told once", func() bool { return slices.Equal(b.was(), []string{"/disconnect websocket alice"}) })
}

// Topics that come and go disturb no other topic: under load none of its events is lost or comes
// twice, and each topic has its events in order, also live ones.
func TestChangeUnderLoad(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	r, err := openWS(s.url, "topic=stays&topic=live.stays")
	must(t, err)
	defer r.close()
	until(t, "it has joined", func() bool { return s.members() == 2 })
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	var sent [4]int
	topics := []string{"stays", "live.stays", "moves.1", "moves.2"}
	for i, topic := range topics {
		publishing.Go(func() {
			for n := 1; ; n++ {
				s.publish(topic, fmt.Sprint(n))
				sent[i] = n
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	next := map[string]int{}      // by filter and topic
	lastID := map[string]string{} // of filters that have left
	take := func(m changeMessage) {
		t.Helper()
		if m.Gap != "" || m.Error != nil {
			t.Fatalf("%+v", m)
		}
		if m.Topic == "" {
			return
		}
		key := m.For + " " + m.Topic
		n := 0
		fmt.Sscan(m.Data, &n)
		if want, ok := next[key]; ok && n != want || !ok && m.For == "" && n != 1 {
			t.Fatalf("%q: got %d, want %d", key, n, next[key])
		}
		next[key] = n + 1
		if m.For != "" {
			lastID[m.For] = m.ID
		}
	}
	for range rounds {
		for _, filter := range []string{"moves.1", "moves.*", "moves.2"} {
			answer, before := r.change(t, `"subscribe":{"topic":%q,"after":%q}`, filter, lastID[filter])
			for _, m := range before {
				take(m)
			}
			if answer.Subscribed == nil {
				t.Fatalf("%+v", answer)
			}
			if lastID[filter] == "" {
				lastID[filter] = answer.Subscribed.Last
			}
			for range 20 {
				take(r.any(t))
			}
		}
		for _, filter := range []string{"moves.*", "moves.1", "moves.2"} {
			_, before := r.change(t, `"unsubscribe":{"topic":%q}`, filter)
			for _, m := range before {
				take(m)
			}
		}
	}
	close(stop)
	publishing.Wait()
	for i, topic := range topics[:2] {
		for next[" "+topic] != sent[i]+1 {
			take(r.any(t))
		}
	}
}

// A connection goes on with a new token of the same user, and otherwise ends when its token expires.
func TestRefresh(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret)})
	sign := func(name string, d time.Duration, read ...string) string {
		c := keys.Claims{RegisteredClaims: jwt.RegisteredClaims{Subject: name, ExpiresAt: jwt.NewNumericDate(time.Now().Add(d))}}
		c.Push.Read, c.Push.Write = read, read
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
		must(t, err)
		return text
	}
	const soon = 10 * time.Second
	began := time.Now()
	ends, err := openWS(s.url, "topic=a&token="+sign("alice", soon, "a", "b"))
	must(t, err)
	defer ends.close()
	r, err := openWS(s.url, "topic=a&token="+sign("alice", soon, "a", "b"))
	must(t, err)
	defer r.close()
	stream, err := openSSE(s.url, "topic=a&format=json&token="+sign("alice", soon, "a"), "")
	must(t, err)
	defer stream.close()
	if n, err := strconv.Atoi(stream.header.Get("Push-Expires-In")); err != nil || n < 1 || n > 10 {
		t.Errorf("it expires in %d seconds, %v", n, err)
	}
	r.subscribe(t, "b")
	r.refused(t, 401, `"refresh":{"token":"forged"}`)
	r.refused(t, 401, `"refresh":{"token":%q}`, sign("alice", -time.Minute, "a", "b"))
	r.refused(t, 403, `"refresh":{"token":%q}`, sign("bob", time.Minute, "a", "b"))
	r.refused(t, 403, `"refresh":{"token":%q}`, sign("alice", time.Minute, "a"))
	r.refused(t, 403, `"subscribe":{"topic":"c"}`)
	m, _ := r.change(t, `"refresh":{"token":%q}`, sign("alice", time.Hour, "a", "b", "c"))
	if m.Refreshed == nil || m.Refreshed.ExpiresIn < 3590 || m.Refreshed.ExpiresIn > 3600 {
		t.Fatalf("%+v", m)
	}
	r.subscribe(t, "c")
	body := fmt.Sprintf(`{"refresh":{"token":%q}}`, sign("alice", time.Hour, "a", "c"))
	status, answer := s.request("POST", "/connection?client="+stream.header.Get("Push-Client"), body,
		"Authorization", "Bearer "+sign("alice", time.Minute))
	if status != 200 || !strings.Contains(answer, `"expires_in":36`) && !strings.Contains(answer, `"expires_in":35`) {
		t.Errorf("%d %s", status, answer)
	}
	if _, err := ends.read(); err == nil || time.Since(began) < soon-2*time.Second {
		t.Errorf("it has ended with %v after %v", err, time.Since(began))
	}
	time.Sleep(time.Until(began.Add(soon + 2*time.Second))) // the sweeper has passed
	s.publish("a", "1")
	s.publish("b", "2")
	got := []string{r.any(t).Data, r.any(t).Data} // there is no order of different topics
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%q", got)
	}
	if m, err := stream.next(); err != nil || !strings.Contains(m.Data, `"1"`) {
		t.Errorf("%+v, %v", m, err)
	}
	if a := r.ask(t, 999, "c", "3", ""); a.Published == nil {
		t.Errorf("it publishes by the new token: %+v", a)
	}
}

// change changes a connection of Server-Sent Events.
func (s *site) change(client, body string, header ...string) (int, changeMessage) {
	s.t.Helper()
	status, text := s.request("POST", "/connection?"+url.Values{"client": {client}}.Encode(), body, header...)
	var m changeMessage
	if status == 200 {
		must(s.t, json.Unmarshal([]byte(text), &m))
	}
	return status, m
}

// Topics come and go on a connection of Server-Sent Events, by requests of its user. Its id stays that
// of the topics of its request.
func TestChangeEvents(t *testing.T) {
	a, b := guarded(t, Config{Presence: []string{"room.*"}})
	first := a.publish("b", "1")
	a.publish("b", "2")
	alice := []string{"Authorization", "Bearer " + user(t, "alice")}
	r, err := openSSE(a.url, "topic=a&format=json&token="+user(t, "alice"), "")
	must(t, err)
	defer r.close()
	id := r.header.Get("Push-Client")
	until(t, "it has joined", func() bool { return a.members() == 1 })
	next := func() (m changeMessage) {
		t.Helper()
		got, err := r.next()
		must(t, err)
		must(t, json.Unmarshal([]byte(got.Data), &m))
		return m
	}
	before := r.lastID
	var status int
	var m changeMessage
	until(t, "it has a topic more", func() bool {
		status, m = a.change(id, fmt.Sprintf(`{"subscribe":{"topic":"b","after":%q}}`, first), alice...)
		return status != 503 // it may not have joined yet
	})
	if status != 200 || m.Subscribed == nil || m.Subscribed.Topic != "b" || m.Subscribed.Last != first {
		t.Fatalf("%d %+v", status, m)
	}
	if e := next(); e.Topic != "b" || e.For != "b" || e.Data != "2" {
		t.Errorf("%+v", e)
	}
	if r.lastID != before {
		t.Errorf("the id has become %s, was %s", r.lastID, before)
	}
	if status, m := a.change(id, `{"subscribe":{"topic":"room.1"}}`, alice...); status != 200 {
		t.Errorf("%d %+v", status, m)
	}
	until(t, "alice is present", func() bool { return slices.Equal(b.present("room.1", backendToken(t)...), []string{"alice"}) })
	at := a.publish("a", "3")
	if e := next(); e.Topic != "a" || e.For != "" || e.Data != "3" || r.lastID != at {
		t.Errorf("%+v at %s, want %s", e, r.lastID, at)
	}
	for _, c := range []struct {
		client, body string
		header       []string
		status       int
	}{
		{id, `{"subscribe":{"topic":"c"}}`, nil, 401},
		{id, `{"subscribe":{"topic":"c"}}`, []string{"Authorization", "Bearer " + user(t, "bob")}, 403},
		{id, `{"subscribe":{"topic":"c"}}`, []string{"Cookie", TokenCookie + "=" + user(t, "alice"), "Origin", "https://evil.example"}, 403},
		{id, `{"subscribe":{"topic":"c"}}`, []string{"Authorization", "Bearer " + token(t, jwt.SigningMethodHS256, secret, time.Hour, []string{">"}, nil)}, 403},
		{id + "1", `{"subscribe":{"topic":"c"}}`, alice, 404},
		{"", `{"subscribe":{"topic":"c"}}`, alice, 404},
		{id, `{"subscribe":{"topic":"b"}}`, alice, 400},
		{id, `{"subscribe":{"topic":"b.."}}`, alice, 400},
		{id, `{}`, alice, 400},
		{id, `hello`, alice, 400},
		{id, `{"unsubscribe":{"topic":"c"}}`, alice, 404},
		{id, `{"refresh":{"token":"x"}}`, alice, 401},
		{id, strings.Repeat(" ", 20_000), alice, 413},
	} {
		if status, _ := a.change(c.client, c.body, c.header...); status != c.status {
			t.Errorf("%s: %d, want %d", c.body, status, c.status)
		}
	}
	if status, _ := b.change(id, `{"subscribe":{"topic":"c"}}`, alice...); status != 404 {
		t.Errorf("on another node: %d", status)
	}
	for _, topic := range []string{"b", "room.1", "a"} {
		if status, m := a.change(id, fmt.Sprintf(`{"unsubscribe":{"topic":%q}}`, topic), alice...); status != 200 || m.Unsubscribed != topic {
			t.Errorf("%d %+v", status, m)
		}
	}
	until(t, "the roster is empty", func() bool { return len(b.present("room.1", backendToken(t)...)) == 0 })
	a.publish("b", "unwanted")
	a.publish("a", "unwanted")
	if status, _ := a.change(id, `{"subscribe":{"topic":"d"}}`, alice...); status != 200 {
		t.Error(status)
	}
	a.publish("d", "4")
	if e := next(); e.Data != "4" {
		t.Errorf("%+v", e)
	}
	text, err := openSSE(a.url, "topic=a&token="+user(t, "alice"), "") // in which a topic could not be named
	must(t, err)
	defer text.close()
	if n := text.header.Get("Push-Expires-In"); n != "" {
		t.Errorf("it may be changed: %q", n)
	}
	until(t, "it is refused", func() bool {
		status, _ := a.change(text.header.Get("Push-Client"), `{"subscribe":{"topic":"d"}}`, alice...)
		return status == 400
	})
}

// Connections that end while they are changed leave nothing behind.
func TestChangeOfEndingConnection(t *testing.T) {
	a, _ := guarded(t, Config{})
	alice := []string{"Authorization", "Bearer " + user(t, "alice")}
	for i := range 20 {
		r, err := openSSE(a.url, "topic=a&format=json&token="+user(t, "alice"), "")
		must(t, err)
		id := r.header.Get("Push-Client")
		var changing sync.WaitGroup
		for j := range 4 {
			changing.Go(func() { a.change(id, fmt.Sprintf(`{"subscribe":{"topic":"b.%d"}}`, j), alice...) })
		}
		time.Sleep(time.Duration(i%10) * time.Millisecond)
		r.close()
		changing.Wait()
	}
	until(t, "the orders alone are left", func() bool { return a.members() == 0 && len(a.hub.All()) == 1 })
}

// An order ends a topic that was added, and does not end one that is added after it.
func TestChangeAndOrders(t *testing.T) {
	a, b := guarded(t, Config{})
	r, err := openWS(a.url, "topic=a&token="+user(t, "alice"))
	must(t, err)
	defer r.close()
	r.subscribe(t, "b")
	b.order("/unsubscribe", url.Values{"client": {r.first.Client}, "topic": {"b"}}, backendToken(t))
	if m := r.any(t); m.Unsubscribed != "b" || m.Ref != 0 {
		t.Errorf("%+v", m)
	}
	a.publish("b", "unwanted")
	r.subscribe(t, "b")
	a.publish("b", "1")
	if m := r.any(t); m.Data != "1" || m.For != "b" {
		t.Errorf("%+v", m)
	}
	b.order("/disconnect", url.Values{"client": {r.first.Client}}, backendToken(t))
	if _, err := r.read(); err == nil {
		t.Error("it goes on")
	}
}

// No message makes the gateway panic, or takes events from the other topics.
func FuzzChange(f *testing.F) {
	for _, q := range []string{`{"topic":"b"}`, `{"topic":"b","after":"x-1","last":3}`, `{"topic":"b","after":"first"}`,
		`{"token":"x"}`, `null`, `{"topic":"$presence.a"}`, `[1`} {
		f.Add("subscribe", q)
		f.Add("unsubscribe", q)
		f.Add("refresh", q)
	}
	s := newSite(f, f.TempDir(), Config{Presence: []string{">"}, MaxMessage: 10_000})
	f.Fuzz(func(t *testing.T, verb, q string) {
		if len(verb)+len(q) > 10_000 {
			return
		}
		r, err := openWS(s.url, "topic=stays.1")
		must(t, err)
		defer r.close()
		r.send(t, strings.ToValidUTF8(fmt.Sprintf(`{"ref":1,%q:%s}`, verb, q), ""))
		b, err := r.read()
		if err != nil {
			return // closed, with a reason
		}
		var m changeMessage
		must(t, json.Unmarshal(b, &m))
		if m.Ref != 1 || m.Unsubscribed == "stays.1" {
			return
		}
		data := fmt.Sprint(time.Now().UnixNano())
		if _, err := s.Publish(t.Context(), "stays.1", []byte(data), ""); err != nil {
			t.Fatal(err)
		}
		for m.For != "" || m.Data != data {
			m = r.any(t)
		}
	})
}

// A client is told that it has a live topic when its events come to it, and not before: they are
// stored nowhere. That of another node that has just published one would miss it otherwise.
func TestLiveTopicIsToldWhenItIsThere(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	f, err := s.hub.Acquire(t.Context(), "live.x")
	must(t, err)
	defer s.hub.Release(f)
	r, err := openWS(s.url, "topic=a")
	must(t, err)
	defer r.close()
	opened := make(chan *wsReader, 1)
	answered := make(chan changeMessage, 1)
	f.Lock() // so that no client joins
	go func() {
		r, err := openWS(s.url, "topic=live.x&topic=b")
		if err != nil {
			t.Error(err)
		}
		opened <- r
	}()
	go func() {
		m, _ := r.change(t, `"subscribe":{"topic":"live.x"}`)
		answered <- m
	}()
	time.Sleep(100 * time.Millisecond)
	if len(opened) > 0 || len(answered) > 0 {
		t.Errorf("%d clients were greeted, and %d were answered", len(opened), len(answered))
	}
	f.Unlock()
	m, late := <-answered, <-opened
	defer late.close()
	if m.Subscribed == nil {
		t.Errorf("%+v", m)
	}
	if t.Failed() {
		return // the event may not come
	}
	s.publish("live.x", "1")
	for _, r := range []*wsReader{r, late} {
		if m := r.any(t); m.Data != "1" {
			t.Errorf("%+v", m)
		}
	}
}
