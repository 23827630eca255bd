package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gobwas/ws/wsutil"
	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/keys"
	"github.com/socknotify/socknotify/gateway/internal/transport"
)

// guarded returns two gateways on one node that want tokens.
func guarded(t *testing.T, config Config) (a, b *site) {
	t.Helper()
	config.Authorize = JWT("HS256", secret)
	a = newSite(t, t.TempDir(), config)
	return a, newSiteOn(t, a.node, config)
}

// backendToken returns the header of requests that may give orders.
func backendToken(t *testing.T) []string {
	t.Helper()
	c := keys.Claims{RegisteredClaims: jwt.RegisteredClaims{Subject: "backend"}}
	c.Push.Control, c.Push.Presence = true, []string{">"}
	return []string{"Authorization", "Bearer " + userToken(t, c)}
}

// order gives an order.
func (s *site) order(path string, values url.Values, header []string) {
	s.t.Helper()
	if status, body := s.request("POST", path+"?"+values.Encode(), "", header...); status != 202 {
		s.t.Fatalf("%s %v: %d %s", path, values, status, body)
	}
}

// named returns the next block of Server-Sent Events that has data, and its name.
func (r *sseReader) named(t *testing.T) (name, data string) {
	t.Helper()
	m, err := r.next()
	must(t, err)
	return m.name, m.Data
}

// A user's connections end on all nodes, by each way, and are told. Those of others go on.
func TestDisconnect(t *testing.T) {
	a, b := guarded(t, Config{})
	backend := backendToken(t)
	query := func(name string) string { return "topic=x&topic=live.y&token=" + user(t, name) }
	var alice []reader
	for _, s := range []*site{a, b} {
		sse, err := openSSE(s.url, query("alice"), "")
		must(t, err)
		defer sse.close()
		socket, err := openWS(s.url, query("alice"))
		must(t, err)
		defer socket.close()
		alice = append(alice, sse, socket)
	}
	polled := make(chan int, 1)
	go func() {
		status, _ := b.request("GET", "/poll?"+query("alice"), "")
		polled <- status
	}()
	bob, err := openWS(b.url, query("bob"))
	must(t, err)
	defer bob.close()
	until(t, "all have joined", func() bool { return a.members()+b.members() == 12 })
	a.order("/disconnect", url.Values{"user": {"alice"}}, backend)
	for _, r := range alice {
		switch r := r.(type) {
		case *sseReader:
			if name, _ := r.named(t); name != "disconnected" {
				t.Errorf("got %q", name)
			}
			if _, err := r.next(); err != io.EOF {
				t.Errorf("then %v", err)
			}
		case *wsReader:
			var closed wsutil.ClosedError
			if _, err := r.read(); !errors.As(err, &closed) || closed.Code != 4403 {
				t.Errorf("got %v", err)
			}
		}
		r.close()
	}
	if status := <-polled; status != http.StatusForbidden {
		t.Errorf("the poll has got %d", status)
	}
	a.publish("x", "bob goes on")
	expect(t, bob, message{Topic: "x", Data: "bob goes on"})
	notHers := url.Values{"client": {bob.first.Client}, "user": {"alice"}}
	a.order("/disconnect", notHers, backend)
	a.order("/disconnect", url.Values{"client": {"x-1"}}, backend)
	a.publish("x", "still")
	expect(t, bob, message{Topic: "x", Data: "still"})
	a.order("/disconnect", url.Values{"client": {bob.first.Client}}, backend)
	if _, err := bob.read(); err == nil || !strings.Contains(err.Error(), "disconnected") {
		t.Errorf("got %v", err)
	}
	bob.close()
	until(t, "all have left", func() bool { return a.Stats().Conns+b.Stats().Conns == 0 })
	if a.Stats().Topics != 0 || len(a.Topics(10)) != 0 {
		t.Errorf("topics of the gateway's own are shown: %+v", a.Topics(10))
	}
	again, err := openSSE(b.url, query("alice"), "") // the order was for the connections of its time
	must(t, err)
	defer again.close()
	a.publish("x", "back")
	expect(t, again, message{Data: "back"})
}

// A client loses one of its topics on all nodes, is told, and keeps the others.
func TestUnsubscribe(t *testing.T) {
	a, b := guarded(t, Config{})
	backend := backendToken(t)
	query := "topic=x&topic=y.*&topic=live.z&token=" + user(t, "alice")
	sse, err := openSSE(b.url, query, "")
	must(t, err)
	defer sse.close()
	socket, err := openWS(a.url, query)
	must(t, err)
	defer socket.close()
	until(t, "both have joined", func() bool { return a.members()+b.members() == 6 })
	for _, topic := range []string{"y.*", "live.z"} {
		a.order("/unsubscribe", url.Values{"user": {"alice"}, "topic": {topic}}, backend)
		want := fmt.Sprintf(`{"unsubscribed":%q}`, topic)
		if name, data := sse.named(t); name != "unsubscribed" || data != want {
			t.Errorf("got %q %s", name, data)
		}
		if got, err := socket.read(); err != nil || string(got) != want {
			t.Errorf("got %s, %v", got, err)
		}
	}
	for _, topic := range []string{"y.1", "live.z", "x"} {
		a.publish(topic, "to "+topic)
	}
	expect(t, sse, message{Data: "to x"})
	expect(t, socket, message{Topic: "x", Data: "to x"})
}

// Orders need a grant of their own, a user or a client, and a page that may publish. A subject is
// what the signed token says, and cannot be given in another way.
func TestOrdersRefused(t *testing.T) {
	a, _ := guarded(t, Config{})
	backend := backendToken(t)
	bob, err := openWS(a.url, "topic=x&token="+user(t, "bob"))
	must(t, err)
	defer bob.close()
	wrong := []byte("another secret of 32 bytes, wrong")
	forged, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "backend", "exp": 1 << 40, "push": map[string]any{"control": true}}).SignedString(wrong)
	must(t, err)
	plain := []string{"Authorization", "Bearer " + user(t, "backend")} // the name alone is no grant
	for _, c := range []struct {
		path   string
		header []string
		status int
	}{
		{"/disconnect?user=bob", nil, 401},
		{"/disconnect?user=bob", []string{"Authorization", "Bearer " + forged}, 401},
		{"/disconnect?user=bob", plain, 403},
		{"/disconnect?user=bob&sub=backend&control=true", plain, 403},
		{"/unsubscribe?user=bob&topic=x", plain, 403},
		{"/disconnect?user=bob", append([]string{"Origin", "https://evil.example"}, backend...), 403},
		{"/disconnect", backend, 400},
		{"/disconnect?user=&client=", backend, 400},
		{"/disconnect?user=bob&topic=x", backend, 400},
		{"/unsubscribe?user=bob", backend, 400},
		{"/unsubscribe?user=bob&topic=a..b", backend, 400},
		{"/unsubscribe?user=bob&topic=$control", backend, 400},
		{"/disconnect?user=" + strings.Repeat("x", access.MaxSubject+1), backend, 400},
		{"/publish?topic=$control", backend, 400},
		{"/events?topic=$control", backend, 400},
	} {
		method := "POST"
		if strings.HasPrefix(c.path, "/events") {
			method = "GET"
		}
		if status, body := a.request(method, c.path, `{"user":"bob"}`, c.header...); status != c.status {
			t.Errorf("%s with %v: %d %s, want %d", c.path, c.header, status, body, c.status)
		}
	}
	if status, _ := a.request("GET", "/disconnect?user=bob", "", backend...); status != 405 {
		t.Errorf("GET: %d", status)
	}
	a.publish("x", "still here")
	expect(t, bob, message{Topic: "x", Data: "still here"})
	open := newSite(t, t.TempDir(), Config{})
	if status, _ := open.request("POST", "/disconnect?user=bob", ""); status != http.StatusForbidden {
		t.Errorf("without tokens: %d", status)
	}
	long := "Bearer " + user(t, strings.Repeat("x", access.MaxSubject+1))
	status, _ := a.request("GET", "/poll?topic=x&last=1", "", "Authorization", long)
	if status != http.StatusUnauthorized {
		t.Errorf("a long subject: %d", status)
	}
}

// orders returns the feed of the orders, when the node follows it. It begins to do so after the
// site has begun to accept clients.
func (s *site) orders(t *testing.T) (orders *hub.Feed) {
	until(t, "the node follows orders", func() bool {
		for _, f := range s.hub.All() {
			if f.Filter() == event.ControlTopic {
				f.Mu.Lock()
				defer f.Mu.Unlock()
				orders = f
				return len(f.Members) == 1
			}
		}
		return false
	})
	return orders
}

// Clients with wildcards do not see orders, live or stored. A node that was away when an order was
// given carries it out when it is back.
func TestOrdersHidden(t *testing.T) {
	a, b := guarded(t, Config{})
	backend := backendToken(t)
	all, err := openSSE(a.url, "topic=>&format=json&token="+user(t, "watcher"), "")
	must(t, err)
	defer all.close()
	bob, err := openWS(b.url, "topic=x&token="+user(t, "bob"))
	must(t, err)
	defer bob.close()
	until(t, "both have joined", func() bool { return a.members()+b.members() == 2 })
	must(t, b.orders(t).Sub.Unsubscribe()) // what is republished does not reach b
	must(t, b.node.Conn.Flush())
	a.order("/disconnect", url.Values{"user": {"bob"}}, backend)
	// An audit finds the order.
	if _, err := bob.read(); err == nil || !strings.Contains(err.Error(), "disconnected") {
		t.Errorf("got %v", err)
	}
	a.publish("x", "after")
	past, err := openSSE(a.url, "topic=>&after=first&format=json&token="+user(t, "x"), "")
	must(t, err)
	defer past.close()
	for _, r := range []*sseReader{all, past} {
		m, err := r.next()
		must(t, err)
		var e event.Envelope
		must(t, json.Unmarshal([]byte(m.Data), &e))
		if e.Topic != "x" || e.Data != "after" {
			t.Errorf("got %+v", e)
		}
	}
}

// A node that may have missed orders sends all clients away, so that they come back.
func TestOrdersLost(t *testing.T) {
	a, _ := guarded(t, Config{})
	r, err := openWS(a.url, "topic=x&token="+user(t, "alice"))
	must(t, err)
	defer r.close()
	until(t, "it has joined", func() bool { return a.members() == 1 })
	f := a.orders(t)
	f.Mu.Lock()
	f.Lose(0, event.Span{After: f.Floor, Through: f.Floor + 10})
	f.Mu.Unlock()
	if _, err := r.read(); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("got %v", err)
	}
}

// An order that is carried out while its client joins is not missed.
func TestOrderWhileJoining(t *testing.T) {
	a, _ := guarded(t, Config{})
	backend := backendToken(t)
	joining, witness := newOrderSink(a, "alice"), newOrderSink(a, "alice")
	must(t, a.hub.Join(t.Context(), &witness.Subscriber, []hub.Want{{Filter: "x"}}))
	a.order("/unsubscribe", url.Values{"user": {"alice"}, "topic": {"x"}}, backend)
	a.order("/disconnect", url.Values{"user": {"alice"}}, backend)
	<-witness.ended
	a.hub.Leave(&witness.Subscriber)
	later := newOrderSink(a, "alice")
	for _, s := range []*orderSink{joining, later} {
		must(t, a.hub.Join(t.Context(), &s.Subscriber, []hub.Want{{Filter: "x"}, {Filter: "y"}}))
		a.hub.Leave(&s.Subscriber)
	}
	want := "unsubscribed x, " + access.ErrKicked.Error()
	if joining.got != want || later.got != "" {
		t.Errorf("got %q and %q, want %q", joining.got, later.got, want)
	}
}

// An orderSink notes how it ends. It has the id of a client that was accepted when it was made.
type orderSink struct {
	hub.Subscriber
	got   string
	ended chan struct{} // closed by end
}

func newOrderSink(s *site, user string) *orderSink {
	o := &orderSink{ended: make(chan struct{})}
	o.To, o.ID, o.Identity = o, s.hub.Clients.NewID(), &hub.Identity{User: user}
	return o
}

func (o *orderSink) Send(int, *event.Event) bool { return true }
func (o *orderSink) Gap(int, string, event.Span) {}
func (o *orderSink) Flush(context.Context) error { return nil }
func (o *orderSink) End(_ *transport.Server, err error) {
	o.got += err.Error()
	close(o.ended)
}
func (o *orderSink) Unsubscribed(_ *transport.Server, filter string) {
	o.got += "unsubscribed " + filter + ", "
}
