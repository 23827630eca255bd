package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/gateway/client"
)

// A publisher goes on at another node when one is lost. Each event is stored once.
func TestPublisher(t *testing.T) {
	all := nodes(t, 2, gateway.Config{Retry: time.Second})
	c := &client.Client{Nodes: []string{all[0].URL, all[1].URL}, Retry: time.Millisecond}
	p := &client.Publisher{Client: c}
	defer p.Close()
	x := subscribe(t, c, &client.Subscription{Topics: []string{"a"}})
	<-x.opened
	const n = 60
	want := map[string]bool{}
	for round := range 3 {
		var publishing sync.WaitGroup
		for i := range n {
			data := fmt.Sprint(round, " ", i)
			want[data] = true
			publishing.Go(func() {
				if r, err := p.Publish(t.Context(), "a", data, ""); err != nil || r.ID == "" {
					t.Errorf("%+v, %v", r, err)
				}
			})
			if i == n/2 {
				all[round%2].cut()
			}
		}
		publishing.Wait()
		all[round%2].down.Store(false)
	}
	large := strings.Repeat("x", 20_000) // by a POST
	want[large] = true
	if r, err := p.Publish(t.Context(), "a", large, "large"); err != nil || r.ID == "" {
		t.Errorf("%+v, %v", r, err)
	}
	for range len(want) {
		e := <-x.events
		if !want[e.Data] {
			t.Errorf("%.20q came twice, or was not published", e.Data)
		}
		delete(want, e.Data)
	}
	if r, err := p.Publish(t.Context(), "a", "again", "key"); err != nil || r.Duplicate {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := p.Publish(t.Context(), "a", "again", "key"); err != nil || !r.Duplicate {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := p.Publish(t.Context(), "live.a", "now", ""); err != nil || r != (client.Receipt{}) {
		t.Errorf("live: %+v, %v", r, err)
	}
}

// What the gateway refuses ends a call, what may work later does not, and a call ends with its
// context.
func TestPublisherRefused(t *testing.T) {
	all := nodes(t, 1, gateway.Config{PublishRate: gateway.Rate{PerSecond: 50, Burst: 1},
		Authorize: func(r *http.Request) (gateway.Grant, error) {
			if gateway.Token(r) != "valid" {
				return gateway.Grant{}, gateway.ErrNoToken
			}
			return gateway.Grant{Write: []string{"a"}}, nil
		}})
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond,
		Token: func(context.Context) (string, error) { return "valid", nil }}
	p := &client.Publisher{Client: c}
	defer p.Close()
	var refused *client.RefusedError
	if _, err := p.Publish(t.Context(), "b", "x", ""); !errors.As(err, &refused) || refused.Status != 403 {
		t.Errorf("%v", err)
	}
	for range 5 { // beyond the rate
		if _, err := p.Publish(t.Context(), "a", "x", ""); err != nil {
			t.Error(err)
		}
	}
	without := &client.Publisher{Client: &client.Client{Nodes: c.Nodes}}
	if _, err := without.Publish(t.Context(), "a", "x", ""); !errors.As(err, &refused) || refused.Status != 401 {
		t.Errorf("%v", err)
	}
	all[0].cut()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Publish(ctx, "a", "x", "")
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := new(client.Publisher).Publish(t.Context(), "a", "x", ""); err == nil {
		t.Error("without a client it has published")
	}
}

// A subscription begins with the last events, and goes on where it was.
func TestLast(t *testing.T) {
	all := nodes(t, 1, gateway.Config{})
	c := &client.Client{Nodes: []string{all[0].URL}, Retry: time.Millisecond}
	for i := range 10 {
		publish(t, c, "a", fmt.Sprint(i))
	}
	s := &client.Subscription{Topics: []string{"a"}, Last: 3}
	x := subscribe(t, c, s)
	for _, want := range []string{"7", "8", "9"} {
		if e := <-x.events; e.Data != want {
			t.Errorf("got %+v, want %s", e, want)
		}
	}
	all[0].cut()
	all[0].down.Store(false)
	publish(t, c, "a", "10")
	if e := <-x.events; e.Data != "10" {
		t.Errorf("got %+v", e)
	}
}

// A backend knows who is on a topic, and ends their subscriptions and connections.
func TestControl(t *testing.T) {
	all := nodes(t, 2, gateway.Config{Presence: []string{"room"}, Authorize: func(r *http.Request) (gateway.Grant, error) {
		name := gateway.Token(r)
		g := gateway.Grant{Subject: name, Read: []string{">"}, Presence: []string{"room"}}
		g.Control = name == "backend"
		return g, nil
	}})
	as := func(name string) *client.Client {
		return &client.Client{Nodes: []string{all[0].URL, all[1].URL}, Retry: time.Millisecond,
			Token: func(context.Context) (string, error) { return name, nil }}
	}
	backend := as("backend")
	watch := subscribe(t, backend, &client.Subscription{Topics: []string{"$presence.room"}})
	first := <-watch.events
	var p client.Presence
	must(t, json.Unmarshal([]byte(first.Data), &p))
	if first.Topic != "$presence.room" || p.Members == nil || len(p.Members) != 0 {
		t.Errorf("%+v", first)
	}
	moved := func() string {
		t.Helper()
		p := client.Presence{}
		e := <-watch.events
		must(t, json.Unmarshal([]byte(e.Data), &p))
		if p.Join != nil {
			return "+" + p.Join.User
		}
		return "-" + p.Leave.User
	}
	alice := subscribe(t, as("alice"), &client.Subscription{Topics: []string{"room"}})
	if got := moved(); got != "+alice" {
		t.Error(got)
	}
	bob := subscribe(t, as("bob"), &client.Subscription{Topics: []string{"room"}})
	if got := moved(); got != "+bob" {
		t.Error(got)
	}
	p, err := backend.Members(t.Context(), "room")
	must(t, err)
	var users []string
	for _, m := range p.Members {
		users = append(users, m.User)
	}
	slices.Sort(users)
	if !slices.Equal(users, []string{"alice", "bob"}) || p.Full {
		t.Errorf("%+v", p)
	}
	var refused *client.RefusedError
	if err := as("alice").Disconnect(t.Context(), "bob", ""); !errors.As(err, &refused) || refused.Status != 403 {
		t.Errorf("%v", err)
	}
	must(t, backend.Disconnect(t.Context(), "alice", ""))
	if err := <-alice.ended; !errors.As(err, &refused) || refused.Text != "disconnected" {
		t.Errorf("%v", err)
	}
	if got := moved(); got != "-alice" {
		t.Error(got)
	}
	must(t, backend.Unsubscribe(t.Context(), "room", "", p.Members[slices.IndexFunc(p.Members,
		func(m client.Member) bool { return m.User == "bob" })].Client))
	if err := <-bob.ended; !errors.As(err, &refused) || !strings.Contains(refused.Text, "room") {
		t.Errorf("%v", err)
	}
	if got := moved(); got != "-bob" {
		t.Error(got)
	}
}
