package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

// Each way to subscribe gets the events of a topic, in order, with their ids.
func TestSubscribe(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	sse, err := openSSE(s.url, "topic=a.b", "")
	must(t, err)
	defer sse.close()
	wild, err := openSSE(s.url, "topic=a.*&format=json", "")
	must(t, err)
	defer wild.close()
	socket, err := openWS(s.url, "topic=a.b&topic=live.x")
	must(t, err)
	defer socket.close()
	poll := &pollReader{url: s.url, topics: []string{"a.>"}, after: []string{sse.lastID}}
	until(t, "all have joined", func() bool { return s.Stats().Conns == 3 && s.members() == 4 })
	for i := range 20 {
		data := fmt.Sprintf("line 1\nline %d", i)
		id := s.publish("a.b", data)
		expect(t, sse, message{Data: data, ID: id})
		m, err := wild.next()
		must(t, err)
		if want := string(event.Encode(event.Envelope{Topic: "a.b", ID: id, Data: data})); m.Data != want || m.ID != id {
			t.Fatalf("got %+v, want %s", m, want)
		}
		expect(t, socket, message{Topic: "a.b", Data: data, ID: id})
		expect(t, poll, message{Topic: "a.b", Data: data, ID: id})
	}
	s.publish("live.x", "now")
	m, err := socket.next()
	must(t, err)
	if m.Topic != "live.x" || m.Data != "now" || m.ID != "" || m.Gap != "" {
		t.Errorf("%+v", m)
	}
	if h := sse.header; h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("header %v", h)
	}
	until(t, "all are parked", func() bool { return s.lot.Stats().Parked >= 2 })
}

// members is the number of clients of all topics.
func (s *site) members() (n int) {
	for _, f := range s.hub.All() {
		if f.Filter() != event.ControlTopic {
			f.Mu.Lock()
			n += len(f.Members)
			f.Mu.Unlock()
		}
	}
	return n
}

// A wildcard stands for durable topics alone, so it takes no event from a live topic beside it, in
// either order. Of two filters of one kind that match an event, the first has it.
func TestWildcardBesideLiveTopic(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	for _, query := range []string{
		"topic=>&topic=live.news", "topic=live.news&topic=>", "topic=*.news&topic=live.news",
		"topic=live.*&topic=live.news&topic=>&topic=x.news",
	} {
		r, err := openWS(s.url, query)
		must(t, err)
		topics := strings.Count(query, "topic")
		until(t, "the client has joined", func() bool { return s.members() == topics })
		s.publish("live.news", "now")
		expect(t, r, message{Topic: "live.news", Data: "now"})
		s.publish("x.news", "stored")
		expect(t, r, message{Topic: "x.news", Data: "stored"})
		s.publish("live.news", "once")
		expect(t, r, message{Topic: "live.news", Data: "once"})
		r.close()
		until(t, "the client has left", func() bool { return s.Stats().Conns == 0 })
	}
}

// A client that comes back with the id of the last event that it has seen gets what it has missed, once, and then what
// follows.
func TestResume(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	sse, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	start := sse.lastID
	if start == "" {
		t.Fatal("no id before the first event")
	}
	sse.close()
	const n = 700 // more than one batch
	for i := range n {
		s.publish("a", fmt.Sprint("a", i))
		if i%7 == 0 {
			s.publish("b", fmt.Sprint("b", i))
		}
	}
	readers := func(after string) map[string]reader {
		sse, err := openSSE(s.url, "topic=a", after)
		must(t, err)
		socket, err := openWS(s.url, "topic=a&after="+after)
		must(t, err)
		poll := &pollReader{url: s.url, topics: []string{"a"}, after: []string{after}}
		return map[string]reader{"sse": sse, "socket": socket, "poll": poll}
	}
	middle := ""
	for name, r := range readers(start) {
		for i := range n {
			m, err := r.next()
			must(t, err)
			if m.Data != fmt.Sprint("a", i) {
				t.Fatalf("%s: got %+v, want a%d", name, m, i)
			}
			if i == 300 {
				middle = m.ID
			}
		}
		r.close()
	}
	for name, r := range readers(middle) {
		for i := 301; i < n; i++ {
			m, err := r.next()
			must(t, err)
			if m.Data != fmt.Sprint("a", i) {
				t.Fatalf("%s: got %+v, want a%d", name, m, i)
			}
		}
		s.publish("a", "end of "+name)
		for {
			m, err := r.next()
			must(t, err)
			if m.Data == "end of "+name {
				break
			}
		}
		r.close()
	}
}

// Events that are published while clients come back again and again reach each of them once, in order.
func TestResumeWhilePublishing(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	sse, err := openSSE(s.url, "topic=w.>", "")
	must(t, err)
	after := sse.lastID
	sse.close()
	const n = 3000
	go func() {
		for i := range n {
			s.Publish(t.Context(), "w.x", []byte(fmt.Sprint(i)), "")
		}
	}()
	for i := 0; i < n; {
		r, err := openSSE(s.url, "topic=w."+[]string{"x", "*", ">"}[i%3], after)
		must(t, err)
		for range 100 {
			m, err := r.next()
			must(t, err)
			if m.Data != fmt.Sprint(i) {
				t.Fatalf("got %+v, want %d", m, i)
			}
			if i++; i == n {
				break
			}
		}
		after = r.lastID
		r.close()
	}
}

// A client is told if the stream does not have what it asks for: after another stream, and beyond the retention.
func TestGap(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
	first := s.publish("a", "first")
	for range 100 {
		s.publish("a", strings.Repeat("x", 1000))
	}
	for _, after := range []string{first, "other-1"} {
		want := map[string]string{first: event.GapRetention, "other-1": event.GapEpoch}[after]
		sse, err := openSSE(s.url, "topic=a", after)
		must(t, err)
		expect(t, sse, message{Gap: want})
		sse.close()
		socket, err := openWS(s.url, "topic=a&after="+after)
		must(t, err)
		if socket.first.Gap != want {
			t.Errorf("%+v, want gap %s", socket.first, want)
		}
		socket.close()
		expect(t, &pollReader{url: s.url, topics: []string{"a"}, after: []string{after}}, message{Gap: want})
	}
}

// Republished messages are lost. The successor shows a gap, and an audit finds the last one, which has no successor.
func TestLostMessages(t *testing.T) {
	for _, topic := range []string{"a", "*"} {
		s := newSite(t, t.TempDir(), Config{})
		r, err := openSSE(s.url, "topic="+url.QueryEscape(topic), "")
		must(t, err)
		until(t, "the client has joined", func() bool { return s.members() == 1 })
		s.publish("a", "0")
		expect(t, r, message{Data: "0"})
		f := s.hub.All()[0]
		lose := func(data string) { // the subscription is away while the event is published
			must(t, f.Sub.Unsubscribe())
			must(t, s.node.Conn.Flush())
			s.publish("a", data)
			resubscribe(t, s, f)
		}
		lose("1")
		s.publish("a", "2")
		expect(t, r, message{Data: "1"})
		expect(t, r, message{Data: "2"})
		lose("3")
		expect(t, r, message{Data: "3"})
		until(t, "the repair is counted", func() bool { return s.Stats().Repairs > 0 }) // which is after the reading has begun
		r.close()
		until(t, "the client has left", func() bool { return s.Stats().Conns == 0 })
	}
}

// A client of several topics on one connection of Server-Sent Events comes back to another gateway after it has got a later
// event of one topic, and before its gateway has noticed that an earlier one of another was lost. It gets each event once.
func TestSeveralTopics(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	other := newSiteOn(t, s.node, Config{})
	const query = "topic=a&topic=b&topic=w.*&topic=live.x"
	r, err := openSSE(s.url, query, "")
	must(t, err)
	if strings.Count(r.lastID, ".") != 3 {
		t.Errorf("the first id is %q", r.lastID)
	}
	n, want := 0, map[string]int{}
	publish := func(topic string) {
		s.publish(topic, fmt.Sprint(topic, " ", n))
		want[fmt.Sprint(topic, " ", n)]++
		n++
	}
	got := map[string]int{}
	read := func(count int) {
		t.Helper()
		for range count {
			m, err := r.next()
			must(t, err)
			if m.name == "gap" {
				t.Fatalf("%+v", m)
			}
			got[m.Data]++
		}
	}
	for round, lost := range []string{"a", "b", "w.*", "a"} {
		at := s
		if round%2 == 1 {
			at = other
		}
		until(t, "the client has joined", func() bool { return at.members() == 4 })
		for _, topic := range []string{"a", "w.1", "b", "w.2"} {
			publish(topic)
		}
		read(4)
		for _, f := range at.hub.All() {
			if f.Filter() == lost {
				must(t, f.Sub.Unsubscribe()) // republished events are lost from now on
			}
		}
		must(t, s.node.Conn.Flush())
		publish(strings.ReplaceAll(lost, "*", "1"))
		later := map[string]string{"a": "b", "b": "w.2", "w.*": "a"}[lost]
		publish(later)
		for got[fmt.Sprint(later, " ", n-1)] == 0 {
			read(1)
		}
		r.close()
		until(t, "the client has left", func() bool { return at.Stats().Conns == 0 })
		next := other
		if at == other {
			next = s
		}
		if r, err = openSSE(next.url, query, r.lastID); err != nil {
			t.Fatal(err)
		}
		for len(got) < len(want) {
			read(1)
		}
	}
	// The last client joins its topics one after the other, and the live one last, which has no history.
	until(t, "the client has joined", func() bool { return s.members() == 4 })
	s.publish("live.x", "live")
	want["live"]++
	read(1)
	for _, topic := range []string{"a", "b", "w.1"} {
		publish(topic)
	}
	read(3)
	r.close()
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, numbers := range []string{"1.2", "1.2.3.4.5", "1.2.3.", "1.2.3.x"} {
		id := s.hub.Epoch + "-" + numbers
		if status, body := s.request("GET", "/events?"+query, "", "Last-Event-ID", id); status != 400 || body == "" {
			t.Errorf("id %q: %d %s", id, status, body)
		}
	}
}

// The id of a client whose topics are quiet moves on with the stream, so that it is not told of a gap when it comes back
// after the retention has passed its last event.
func TestQuietTopics(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}, Heartbeat: 50 * time.Millisecond})
	busy, err := openSSE(s.url, "topic=busy", "") // what this node knows of the stream comes from its topics
	must(t, err)
	defer busy.close()
	for _, query := range []string{"topic=quiet", "topic=quiet&topic=busy"} {
		s.publish("quiet", "first")
		r, err := openSSE(s.url, query, "")
		must(t, err)
		last := ""
		for range 100 {
			last = s.publish("busy", strings.Repeat("x", 1000))
		}
		_, number, _ := strings.Cut(last, "-")
		for id := ""; id != number; { // the position of the first topic
			r.conn.SetReadDeadline(time.Now().Add(readTimeout))
			line, err := r.in.ReadString('\n')
			must(t, err)
			if after, ok := strings.CutPrefix(line, "id: "); ok {
				r.lastID = strings.TrimSpace(after)
				_, id, _ = strings.Cut(r.lastID, "-")
				id, _, _ = strings.Cut(id, ".")
			}
		}
		r.close()
		s.publish("busy", strings.Repeat("x", 1000))
		r, err = openSSE(s.url, query, r.lastID)
		must(t, err)
		s.publish("quiet", "then")
		for {
			m, err := r.next()
			must(t, err)
			if m.name == "gap" {
				t.Fatalf("%s: %+v", query, m)
			}
			if m.Data == "then" {
				break
			}
		}
		r.close()
	}
}

// A client that has seen more than the stream's leader has waits until the leader has caught up with itself. It is not told
// that the stream is another one.
func TestLeaderIsBehind(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	s.hub.Patience, s.hub.Hold = time.Hour, time.Hour // as in a cluster, and longer
	s.publish("a", "1")
	ahead := event.Position{Epoch: s.hub.Epoch, Seq: 3}.String()
	type result struct {
		name string
		r    reader
		gap  string
		err  error
	}
	results := make(chan result, 2)
	go func() {
		r, err := openSSE(s.url, "topic=a", ahead)
		results <- result{name: "sse", r: r, err: err}
	}()
	go func() {
		r, err := openWS(s.url, "topic=a&after="+ahead)
		if err != nil {
			results <- result{name: "socket", err: err}
			return
		}
		results <- result{name: "socket", r: r, gap: r.first.Gap}
	}()
	select {
	case r := <-results:
		t.Fatalf("%s was answered: %+v", r.name, r)
	case <-time.After(2500 * time.Millisecond): // a request that is held has no other sign
	}
	s.publish("a", "2")
	s.publish("a", "3")
	for range 2 {
		r := <-results
		must(t, r.err)
		defer r.r.close()
		if r.gap != "" {
			t.Errorf("%s: gap %s", r.name, r.gap)
		}
		defer func() { expect(t, r.r, message{Data: "4"}) }()
	}
	s.publish("a", "4")
}

// A client whose id stays ahead of the stream is not held. While the leader may be behind, the
// client is sent away to come back, and then it is told that its id is of another stream.
func TestIDAheadIsNotHeld(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	s.publish("a", "1")
	s.hub.Patience, s.hub.Hold = time.Hour, 0 // as in a cluster, and shorter
	path := "/events?topic=a&after=" + event.Position{Epoch: s.hub.Epoch, Seq: 1 << 40}.String()
	status, body := s.request("GET", path, "")
	if status != 503 || !strings.Contains(body, "behind") {
		t.Errorf("a leader that may be behind: %d %s", status, body)
	}
	if testing.Short() {
		t.Skip("the rest starts a cluster")
	}
	nodes := newCluster(t)
	member := newSiteOn(t, nodes[0], Config{Stream: StreamConfig{Replicas: 3}})
	until(t, "an event is stored", func() bool {
		_, err := member.Publish(t.Context(), "a", []byte("1"), "key")
		return err == nil
	})
	until(t, "the client is told", func() bool { // an election may come in between
		member.hub.History.Mu.Lock()
		member.hub.History.Previous.Since = time.Now().Add(-2 * hub.MaxBackwards)
		member.hub.History.Mu.Unlock()
		r, err := openSSE(member.url, "topic=a", event.Position{Epoch: member.hub.Epoch, Seq: 1 << 40}.String())
		if err != nil {
			return false
		}
		defer r.close()
		expect(t, r, message{Gap: event.GapEpoch})
		return true
	})
}

// However many clients come back at once, a node makes few requests to the stream for them at a time, so that publishers get
// their acknowledgements.
func TestReadsAreBounded(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	holder, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer holder.close()
	const n = 20
	s.publish("a", "missed")
	expect(t, holder, message{Data: "missed"})
	for range stream.MaxReads {
		must(t, s.hub.History.Acquire(t.Context()))
	}
	got := make(chan error, n)
	for range n {
		go func() {
			r, err := openSSE(s.url, "topic=a", event.Position{Epoch: s.hub.Epoch, Seq: 0}.String())
			if err == nil {
				defer r.close()
				var m message
				if m, err = r.next(); err == nil && m.Data != "missed" {
					err = fmt.Errorf("got %+v", m)
				}
			}
			got <- err
		}()
	}
	until(t, "all have come", func() bool { return s.Stats().Conns == n+1 })
	s.publish("a", "published")
	expect(t, holder, message{Data: "published"})
	if len(got) > 0 {
		t.Errorf("the stream was read for %d clients", len(got))
	}
	for range stream.MaxReads {
		s.hub.History.Release()
	}
	for range n {
		must(t, <-got)
	}
}

// A browser's EventSource ends for good at an answer that is not 200. A gateway that cannot serve
// it now says when it should come back.
func TestEventSourceComesBack(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{MaxConns: 1, Retry: 2 * time.Second})
	refused := func(why string) {
		t.Helper()
		status, body := s.request("GET", "/events?topic=a", "", "Accept", "text/event-stream")
		if retry := "\nretry: "; status != 200 || !strings.Contains(body, retry) {
			t.Errorf("%s: %d %q", why, status, body)
		}
		if status, _ := s.request("GET", "/events?topic=a", ""); status != 503 {
			t.Errorf("%s: another client got %d", why, status)
		}
		status, _ = s.request("GET", "/poll?topic=a", "", "Accept", "text/event-stream")
		if status != 503 {
			t.Errorf("%s: a poll got %d", why, status)
		}
	}
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	refused("too many clients")
	r.close()
	until(t, "the client has left", func() bool { return s.Stats().Conns == 0 })
	s.node.Close()
	refused("no stream")
	s.Drain(t.Context(), 0)
	refused("draining")
}

// An event with the same key is stored once.
func TestIdempotency(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	status, first := s.request("POST", "/publish?topic=a", "x", "Idempotency-Key", "k")
	status2, second := s.request("POST", "/publish?topic=a", "x", "Idempotency-Key", "k")
	if status != 200 || status2 != 200 || strings.TrimSuffix(first, "}\n")+`,"duplicate":true}`+"\n" != second {
		t.Errorf("%d %s%d %s", status, first, status2, second)
	}
	status, answer := s.request("POST", "/publish?topic=a", "y", "Idempotency-Key", "k")
	if status != 422 || !strings.Contains(answer, "other data") {
		t.Errorf("the key with other data: %d %s", status, answer)
	}
	if _, err := s.Publish(t.Context(), "a", []byte("y"), "k"); !errors.Is(err, ErrKeyReused) {
		t.Errorf("Publish: %v", err)
	}
	if status, _ := s.request("POST", "/publish?topic=live.a", "x"); status != 202 {
		t.Errorf("live: %d", status)
	}
}

// Requests that are wrong get a clear answer.
func TestRefused(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{MaxMessage: 1000, MaxConns: 1})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/events", "", 400},
		{"GET", "/events?topic=a..b", "", 400},
		{"GET", "/events?topic=a%20b", "", 400},
		{"GET", "/events?topic=" + strings.Repeat("x", 300), "", 400},
		{"GET", "/events?topic=a&topic=a", "", 400},
		{"GET", "/events?topic=a&after=nonsense", "", 400},
		{"GET", "/events?topic=a&format=xml", "", 400},
		{"GET", "/events?" + strings.Repeat("topic=a&", 65), "", 400},
		{"GET", "/socket?topic=a", "", 426},
		{"HEAD", "/events?topic=a", "", 405},
		{"HEAD", "/socket?topic=a", "", 405},
		{"HEAD", "/poll?topic=a", "", 405},
		{"GET", "/other", "", 404},
		{"POST", "/events?topic=a", "", 405},
		{"POST", "/publish", "", 400},
		{"POST", "/publish?topic=a.*", "", 400},
		{"POST", "/publish?topic=a", strings.Repeat("x", 1001), 413},
		{"POST", "/publish?topic=a", "\xff", 400},
		{"POST", "/publish?topic=a", strings.Repeat("x", 1000), 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
	} {
		if status, body := s.request(c.method, c.path, c.body); status != c.status || body == "" && c.method != "HEAD" {
			t.Errorf("%s %s: %d %q, want %d", c.method, c.path, status, body, c.status)
		}
	}
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	if status, _ := s.request("GET", "/poll?topic=a", ""); status != 503 {
		t.Errorf("one client too many: %d", status)
	}
}

// A silent connection gets heartbeats, and a long poll an empty answer with a position.
func TestHeartbeat(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Heartbeat: 50 * time.Millisecond})
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	for beats := 0; beats < 3; {
		line, err := r.in.ReadString('\n')
		must(t, err)
		if line == ":\n" {
			beats++
		}
	}
	p := &pollReader{url: s.url, topics: []string{"a", "live.b"}}
	go func() {
		until(t, "two polls were answered", func() bool { return s.Stats().Resumed >= 2 })
		s.publish("a", "x")
	}()
	expect(t, p, message{Data: "x"})
}

// startFeed subscribes for a feed that one client waits for, and that has not begun.
func (s *site) startFeed(filter string) (*hub.Start, *hub.Feed) {
	s.t.Helper()
	making := &hub.Start{Done: make(chan struct{}), Refs: 1}
	s.hub.Mu.Lock()
	s.hub.Starting[hub.SubjectOf(filter)] = making
	s.hub.Mu.Unlock()
	f, err := s.hub.AddFeed(filter)
	must(s.t, err)
	return making, f
}

// What is published to a topic whose feed has not begun delays no other topic, and reaches the clients of that feed when it
// begins.
func TestFeedThatHasNotBegun(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	const live = "live.quick" // an audit would find a delayed event of another topic
	quick, err := openWS(s.url, "topic="+live)
	must(t, err)
	defer quick.close()
	until(t, "the client has joined", func() bool { return s.members() == 1 })
	late := "late"
	for i := 0; s.hub.Inbox(hub.SubjectOf(late)) != s.hub.Inbox(hub.SubjectOf(live)); i++ {
		late = fmt.Sprint("late", i)
	}
	start := s.publish(late, "before")
	making, f := s.startFeed(late)
	defer s.hub.Release(f)
	s.publish(late, "1")
	s.publish(live, "2")
	expect(t, quick, message{Data: "2"})
	s.hub.AuditNow()
	audits := s.Stats().Audits
	until(t, "an audit does not wait for the feed", func() bool { return s.Stats().Audits > audits })
	f.Begin(1)
	s.hub.Started(making, late, f, nil)
	r, err := openSSE(s.url, "topic="+late, start)
	must(t, err)
	defer r.close()
	expect(t, r, message{Data: "1"})
	s.publish(late, "3")
	expect(t, r, message{Data: "3"})
	if n := s.Stats().Gaps; n != 0 {
		t.Errorf("%d gaps: the event that came early was not read", n)
	}
	r.close()
	until(t, "the client has left", func() bool { return s.Stats().Conns == 1 })
}

// A client that comes after events have left the stream misses none of them, so it is not told of a gap.
func TestNoGapForNewClients(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
	for range 100 {
		s.publish("a", strings.Repeat("x", 1000))
	}
	until(t, "an audit has found that events have left", func() bool {
		s.hub.AuditNow()
		return s.Stats().First > 1
	})
	making, f := s.startFeed("w.*")
	f.Begin(0)
	s.hub.Started(making, "w.*", f, nil)
	r, err := openSSE(s.url, "topic=w.*", "")
	must(t, err)
	s.publish("w.x", "first")
	expect(t, r, message{Data: "first"})
	r.close()
	until(t, "the client has left", func() bool { return s.Stats().Conns == 0 })
	s.hub.Release(f)
}

// Shutdown ends requests to the stream that are under way, and waits for them, even if NATS says nothing.
func TestShutdownWhileNATSIsSilent(t *testing.T) {
	address := freeAddr(t)
	node, err := Start(NodeConfig{Name: "one", Store: t.TempDir(), Listen: address, Logger: quiet})
	must(t, err)
	defer node.Close()
	proxy := newProxy(t, address)
	conn, err := nats.Connect("nats://" + proxy.address)
	must(t, err)
	defer conn.Close()
	g, err := New(t.Context(), Config{Conn: conn, Logger: quiet}) // makes the stream, which has goroutines of the node
	must(t, err)
	must(t, g.Shutdown(t.Context()))
	before := goleak.IgnoreCurrent()
	g, err = New(t.Context(), Config{Conn: conn, Logger: quiet})
	must(t, err)
	proxy.mute.Store(true)
	g.Changed()
	until(t, "an audit asks for the state of the stream", func() bool {
		g.hub.History.States.Mu.Lock()
		defer g.hub.History.States.Mu.Unlock()
		return g.hub.History.States.Asking
	})
	must(t, g.Shutdown(t.Context()))
	if err := leaks.Find(before); err != nil {
		t.Error(err)
	}
}

// An audit finds that the stream was deleted. A gateway that has found it for a time ends, and is
// not ready.
func TestDeletedStream(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	must(t, s.js().DeleteStream(t.Context(), stream.DefaultName))
	_, err := s.hub.Shards[0].AuditOnce(0)
	if !errors.Is(err, stream.ErrDeleted) {
		t.Fatalf("the audit: %v", err)
	}
	var b hub.Backwards
	now := time.Now()
	if b.Note(err, now) || !b.Note(err, now.Add(hub.MaxBackwards)) {
		t.Error("the stream was given up too early, or not at all")
	}
	s.fail()
	if status, text := s.request("GET", "/readyz", ""); status != 503 || !strings.Contains(text, "stream") {
		t.Errorf("/readyz: %d %s", status, text)
	}
}

// A program that speaks NATS cannot pass an event for one of the stream's.
func TestForgedEvent(t *testing.T) {
	address := freeport.Addrs(t, 1)[0]
	s := newSiteOn(t, newNode(t, NodeConfig{Store: t.TempDir(), Listen: address}), Config{})
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	until(t, "the client has joined", func() bool { return s.members() == 1 })
	refused := make(chan error, 1)
	conn, err := nats.Connect("nats://"+address,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	must(t, err)
	defer conn.Close()
	forged := nats.NewMsg(event.RepublishedPrefix + "a")
	forged.Header.Set("Nats-Sequence", "1000")
	forged.Header.Set("Nats-Last-Sequence", "0")
	must(t, conn.PublishMsg(forged))
	if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a forged event: %v", err)
	}
	must(t, conn.Publish(event.StoredPrefix+"a", []byte("true"))) // publishing as such is allowed
	m, err := r.next()
	must(t, err)
	if m.Data != "true" {
		t.Errorf("got %q", m.Data)
	}
}

// A gateway that starts while the stream's leader does not answer waits for it.
func TestStartWithoutLeader(t *testing.T) {
	addr := freeAddr(t)
	node := newNode(t, NodeConfig{Store: t.TempDir(), Listen: addr})
	newSiteOn(t, node, Config{}) // makes the stream
	p := newProxy(t, addr)
	conn, err := nats.Connect("nats://" + p.address)
	must(t, err)
	defer conn.Close()
	p.mute.Store(true)
	// The client of NATS has no clock that a test could advance.
	time.AfterFunc(stream.RequestTimeout+100*time.Millisecond, func() { p.mute.Store(false) })
	layout := stream.Layout{Name: stream.DefaultName, Generations: []stream.Generation{{Shards: 1}}}
	h, err := hub.New(t.Context(), conn, layout, 1<<10, quiet)
	must(t, err)
	h.Close()
}

// A member waits until it has its one route to each other member.
func TestWaitRoutes(t *testing.T) {
	addrs := freeport.Addrs(t, 3)
	start := func(i int) *Node {
		return newNode(t, NodeConfig{Name: fmt.Sprint("n", i), Store: t.TempDir(), Cluster: addrs[i], Routes: addrs})
	}
	first := start(0)
	start(1)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if first.WaitRoutes(short); short.Err() == nil {
		t.Error("it did not wait for the third")
	}
	start(2)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first.WaitRoutes(ctx)
	must(t, ctx.Err())
	if n := first.Server.NumRoutes(); n != 2 {
		t.Errorf("%d routes", n)
	}
}
