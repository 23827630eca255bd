package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/gateway/client"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// A node is a gateway behind a server that can be cut off.
type node struct {
	*httptest.Server
	down atomic.Bool
}

// nodes returns servers of one gateway.
func nodes(t *testing.T, n int, config gateway.Config) []*node {
	t.Helper()
	engine, err := gateway.Start(gateway.NodeConfig{Name: "one", Store: t.TempDir(), Logger: quiet})
	must(t, err)
	t.Cleanup(engine.Close)
	config.Conn, config.Logger = engine.Conn, quiet
	g, err := gateway.New(t.Context(), config)
	must(t, err)
	all := make([]*node, n)
	for i := range all {
		one := new(node)
		one.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if one.down.Load() {
				panic(http.ErrAbortHandler)
			}
			g.ServeHTTP(w, r)
		}))
		all[i] = one
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(t, g.Shutdown(ctx))
		for _, n := range all {
			n.Close()
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return all
}

// cut ends all connections of a node, and refuses new ones.
func (n *node) cut() {
	n.down.Store(true)
	n.CloseClientConnections()
}

// A subscriber collects what a subscription gives.
type subscriber struct {
	events chan client.Event
	gaps   chan client.Gap
	opened chan struct{}
	ended  chan error
	cancel context.CancelFunc
}

func subscribe(t *testing.T, c *client.Client, s *client.Subscription) *subscriber {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	x := &subscriber{make(chan client.Event, 1000), make(chan client.Gap, 10), make(chan struct{}, 1000),
		make(chan error, 1), cancel}
	s.OnEvent = func(e client.Event) error { x.events <- e; return nil }
	s.OnGap = func(g client.Gap) { x.gaps <- g }
	s.OnState = func(err error) {
		if err == nil {
			x.opened <- struct{}{}
		}
	}
	var working sync.WaitGroup
	working.Go(func() { x.ended <- c.Subscribe(ctx, s) })
	t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return x
}

func publish(t *testing.T, c *client.Client, topic, data string) client.Receipt {
	t.Helper()
	r, err := c.Publish(t.Context(), topic, data, "")
	must(t, err)
	return r
}

// A client whose node is lost goes on at another one, and gets each event once and in order; a later
// one goes on where it has ended.
func TestSubscribe(t *testing.T) {
	all := nodes(t, 3, gateway.Config{Retry: time.Second})
	c := &client.Client{Retry: time.Millisecond}
	for _, n := range all {
		c.Nodes = append(c.Nodes, n.URL)
	}
	s := &client.Subscription{Topics: []string{"a.>", "b"}}
	x := subscribe(t, c, s)
	<-x.opened
	want := func(i int) {
		t.Helper()
		if e := <-x.events; e.Data != fmt.Sprint(i) || e.ID == "" || !strings.HasPrefix(e.Topic, "a.") && e.Topic != "b" {
			t.Fatalf("got %+v, want %d", e, i)
		}
	}
	topics := []string{"a.x", "b", "a.y"}
	n := 0
	for round := range 6 {
		lost := all[round%3]
		for range 10 {
			publish(t, c, topics[n/10%3], fmt.Sprint(n))
			n++
		}
		for i := n - 10; i < n; i++ {
			want(i)
		}
		lost.cut()
		for range 10 { // while it may be connected to none
			publish(t, c, topics[n/10%3], fmt.Sprint(n))
			n++
		}
		for i := n - 10; i < n; i++ {
			want(i)
		}
		lost.down.Store(false)
	}
	x.cancel()
	if err := <-x.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it has ended with %v", err)
	}
	publish(t, c, "b", fmt.Sprint(n)) // missed
	x = subscribe(t, c, s)
	want(n)
}

// What is missing is told.
func TestGap(t *testing.T) {
	all := nodes(t, 1, gateway.Config{})
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond}
	x := subscribe(t, c, &client.Subscription{Topics: []string{"a"}, After: "other-7"})
	if g := <-x.gaps; g.Reason != "epoch" || len(g.Missed) != 1 || g.Missed[0].Topic != "a" || g.Missed[0].After != "other-7" {
		t.Errorf("got %+v", g)
	}
}

// A key makes two attempts one event.
func TestPublish(t *testing.T) {
	all := nodes(t, 1, gateway.Config{})
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond}
	first, err := c.Publish(t.Context(), "a", "x", "key")
	must(t, err)
	second, err := c.Publish(t.Context(), "a", "x", "key")
	must(t, err)
	if first.ID == "" || first.Duplicate || second != (client.Receipt{ID: first.ID, Duplicate: true}) {
		t.Errorf("%+v, then %+v", first, second)
	}
	if r := publish(t, c, "live.a", "x"); r.ID != "" {
		t.Errorf("live: %+v", r)
	}
}

// What will never work ends at once, with what the gateway has said.
func TestRefused(t *testing.T) {
	all := nodes(t, 1, gateway.Config{Authorize: func(r *http.Request) (gateway.Grant, error) {
		if gateway.Token(r) != "valid" {
			return gateway.Grant{}, gateway.ErrNoToken
		}
		return gateway.Grant{Read: []string{"a"}, Write: []string{"a"}}, nil
	}})
	asked := 0
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond,
		Token: func(context.Context) (string, error) {
			if asked++; asked%2 == 1 {
				return "expired", nil // the next one is valid
			}
			return "valid", nil
		}}
	refused := func(what string, err error, status int) {
		t.Helper()
		var r *client.RefusedError
		if !errors.As(err, &r) || r.Status != status {
			t.Errorf("%s: %v, want %d", what, err, status)
		}
	}
	publish(t, c, "a", "x")
	_, err := c.Publish(t.Context(), "b", "x", "")
	refused("publish", err, http.StatusForbidden)
	_, err = c.Publish(t.Context(), "a..", "x", "")
	refused("malformed", err, http.StatusBadRequest)
	x := subscribe(t, c, &client.Subscription{Topics: []string{"a", "b"}})
	refused("subscribe", <-x.ended, http.StatusForbidden)
	without := &client.Client{Nodes: c.Nodes}
	_, err = without.Publish(t.Context(), "a", "x", "")
	refused("no token", err, http.StatusUnauthorized)
	if err := new(client.Client).Subscribe(t.Context(), new(client.Subscription)); err == nil {
		t.Error("without nodes it has begun")
	}
}

// A connection outlives its token, because the client gives it a new one.
func TestRefresh(t *testing.T) {
	all := nodes(t, 1, gateway.Config{Authorize: func(r *http.Request) (gateway.Grant, error) {
		if gateway.Token(r) == "" {
			return gateway.Grant{}, gateway.ErrNoToken
		}
		return gateway.Grant{Read: []string{"a"}, Write: []string{"a"}, Subject: "alice", Expires: time.Now().Add(3 * time.Second)}, nil
	}})
	var asked atomic.Int64
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond,
		Token: func(context.Context) (string, error) { return fmt.Sprint("token ", asked.Add(1)), nil }}
	x := subscribe(t, c, &client.Subscription{Topics: []string{"a"}})
	<-x.opened
	time.Sleep(6 * time.Second) // twice as long as a token lasts
	publish(t, c, "a", "1")
	if e := <-x.events; e.Data != "1" {
		t.Errorf("got %+v", e)
	}
	if n := len(x.opened); n != 0 || asked.Load() < 4 {
		t.Errorf("%d connections more, the token was asked for %d times", n, asked.Load())
	}
}

// An error of OnEvent ends the subscription, before the event.
func TestHandlerFails(t *testing.T) {
	all := nodes(t, 1, gateway.Config{})
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond}
	first := publish(t, c, "a", "1")
	second := publish(t, c, "a", "2")
	publish(t, c, "a", "3")
	failure := errors.New("failed")
	s := &client.Subscription{Topics: []string{"a"}, After: first.ID, OnEvent: func(e client.Event) error {
		if e.Data == "3" {
			return failure
		}
		return nil
	}}
	if err := c.Subscribe(t.Context(), s); err != failure || s.After != second.ID {
		t.Errorf("%v at %s, want %s", err, s.After, second.ID)
	}
}
