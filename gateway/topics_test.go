package gateway

import (
	"net/http"
	"slices"
	"testing"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/internal/test/words"
)

// The first word of a topic says who may read and write it, whether it has presence, and whether clients
// get what was stored before they came. A filter that begins with a wildcard has the limits of all words.
func TestTopicConfig(t *testing.T) {
	yes, no := true, false
	a, _ := guarded(t, Config{Presence: []string{">"}, Topics: map[string]TopicConfig{
		"secret": {Read: []string{"alice", "bob"}, Write: []string{"bob"}},
		"named":  {Read: []string{"*"}},
		"closed": {Write: []string{}},
		"fresh":  {NoHistory: true, Presence: &no},
		"live":   {Presence: &yes, Write: []string{"bob"}},
	}})
	for _, c := range []struct {
		method, path, user string
		status             int
	}{
		{"GET", "/poll?last=1&topic=secret.1", "alice", 200},
		{"GET", "/poll?last=1&topic=secret.>", "bob", 200},
		{"GET", "/poll?last=1&topic=secret", "carol", 403},
		{"GET", "/poll?last=1&topic=other&topic=secret.1", "carol", 403},
		{"GET", "/poll?last=1&topic=named", "carol", 200},
		{"GET", "/poll?last=1&topic=named", "", 403},
		{"GET", "/poll?last=1&topic=other", "", 200},
		{"GET", "/poll?topic=*.1", "carol", 403},
		{"GET", "/poll?topic=>", "carol", 403},
		{"GET", "/poll?last=1&topic=>", "alice", 400}, // because of fresh
		{"GET", "/poll?last=1&topic=fresh", "alice", 400},
		{"GET", "/poll?after=first&topic=fresh.1", "alice", 400},
		{"POST", "/publish?topic=secret.1", "bob", 200},
		{"POST", "/publish?topic=secret.1", "alice", 403},
		{"POST", "/publish?topic=closed", "bob", 403},
		{"POST", "/publish?topic=closed2", "bob", 200},
		{"POST", "/publish?topic=named", "", 200},
		{"POST", "/publish?topic=live.x", "bob", 202},
		{"POST", "/publish?topic=live.x", "alice", 403},
		{"GET", "/presence?topic=live.x", "alice", 200},
		{"GET", "/presence?topic=fresh", "alice", 400},
		{"GET", "/presence?topic=other", "alice", 200},
	} {
		status, body := a.request(c.method, c.path, "x", "Authorization", "Bearer "+watcher(t, c.user, ">", "live.>")[len("&token="):])
		if status != c.status {
			t.Errorf("%s %s of %q: %d %s, want %d", c.method, c.path, c.user, status, body, c.status)
		}
	}

	// A WebSocket has the same limits, also for what is added, and by a new token.
	s, err := openWS(a.url, "topic=other&token="+user(t, "carol"))
	must(t, err)
	defer s.close()
	s.refused(t, 403, `"subscribe":{"topic":"secret.1"}`)
	s.refused(t, 403, `"subscribe":{"topic":"*"}`)
	s.refused(t, 400, `"subscribe":{"topic":"fresh","last":1}`)
	s.refused(t, 400, `"subscribe":{"topic":"fresh","after":"first"}`)
	s.refused(t, 403, `"publish":{"topic":"closed","data":"x"}`)
	s.subscribe(t, "named.1")
	s.subscribe(t, "fresh")
}

// A client of topics without history gets what comes. One that comes back is told of a gap that has exactly what
// it does not get, if there was something.
func TestNoHistory(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Topics: map[string]TopicConfig{"fresh": {NoHistory: true}}})
	first, last := s.publish("fresh", "1"), s.publish("fresh", "2")
	missed := []event.Miss{{Topic: "fresh", After: first, Last: last}}
	p := &pollReader{url: s.url, topics: []string{"fresh"}, after: []string{first}}
	if m, err := p.next(); err != nil || m.Gap != "retention" || !slices.Equal(m.Missed, missed) {
		t.Errorf("by long polling: %+v, %v", m, err)
	}
	sse, err := openSSE(s.url, "topic=fresh", first)
	must(t, err)
	defer sse.close()
	if m, err := sse.next(); err != nil || m.Gap != "retention" || !slices.Equal(m.Missed, missed) {
		t.Errorf("by Server-Sent Events: %+v, %v", m, err)
	}
	ws, err := openWS(s.url, "topic=fresh&after="+first)
	must(t, err)
	defer ws.close()
	if ws.first.Gap != "retention" || !slices.Equal(ws.first.Missed, missed) {
		t.Errorf("by WebSocket: %+v", ws.first)
	}
	current, err := openWS(s.url, "topic=fresh&after="+last)
	must(t, err)
	defer current.close()
	if current.first.Gap != "" {
		t.Errorf("one that has everything is told of a gap: %+v", current.first)
	}
	until(t, "all have joined", func() bool { return s.members() == 3 })
	s.publish("fresh", "3")
	for _, r := range []reader{sse, ws, current} {
		expect(t, r, message{Data: "3"})
	}
}

// A user has so many connections, by whatever way, and others have theirs. One that ends makes room.
func TestMaxConnsPerUser(t *testing.T) {
	a, _ := guarded(t, Config{MaxConnsPerUser: 2})
	query := "topic=a&token=" + user(t, "alice")
	one, err := openSSE(a.url, query, "")
	must(t, err)
	two, err := openWS(a.url, query)
	must(t, err)
	defer two.close()
	for _, path := range []string{"/events?", "/poll?"} {
		status, body := a.request("GET", path+query, "")
		if want := "gateway: more than 2 connections of a user\n"; status != http.StatusTooManyRequests || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if _, err := openWS(a.url, query); err == nil {
		t.Error("a third WebSocket was opened")
	}
	bob, err := openSSE(a.url, "topic=a&token="+user(t, "bob"), "")
	must(t, err)
	defer bob.close()
	one.close()
	until(t, "there is room", func() bool {
		r, err := openSSE(a.url, query, "")
		if err == nil {
			defer r.close()
		}
		return err == nil
	})
	until(t, "it has gone", func() bool { return a.Stats().Conns == 2 })
	// Without tokens a client is an address.
	s := newSite(t, t.TempDir(), Config{MaxConnsPerUser: 1})
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	if status, body := s.request("GET", "/events?topic=a", ""); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.request("GET", "/events?topic=a", "", "Accept", "text/event-stream"); status != http.StatusOK {
		t.Errorf("an EventSource: %d %s", status, body)
	}
}

// A word that is none is refused.
func TestWrongTopicConfig(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	for _, word := range []string{"a.b", "*", "", "$control", "a b"} {
		_, err := New(t.Context(), Config{Conn: node.Conn, Topics: map[string]TopicConfig{word: {}}})
		words.Invalid(t, "Topics", err)
	}
}
