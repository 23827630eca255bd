// Package client is a client of the push gateway. It goes on at another node when one is lost, and
// misses no event of durable topics.
//
//	c := &client.Client{Nodes: []string{"https://a.example.org", "https://b.example.org"}}
//	err := c.Subscribe(ctx, &client.Subscription{
//		Topics:  []string{"orders.>"},
//		OnEvent: func(e client.Event) error { return handle(e.Topic, e.Data) },
//	})
//
// docs/gateway.md says what topics are, and what is promised of their events.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Client has the nodes of a gateway. Its methods may be called concurrently. The fields must not be
// changed after the first call.
type Client struct {
	// Nodes are the addresses of the nodes, such as https://push.example.org. One is required.
	Nodes []string
	// Token, if not nil, returns the token of each request. It is also called before a subscription's
	// token expires, so that its connection goes on.
	Token func(context.Context) (string, error)
	// HTTP is nil for http.DefaultClient. It must not have a Timeout: an answer to a subscription
	// has no end.
	HTTP *http.Client
	// Retry is the average time before the second attempt in a row, 0 is half a second. Each
	// further round over the nodes doubles it, up to MaxRetry, 0 for 15 seconds.
	Retry, MaxRetry time.Duration
	// Silence is the time without an event or a heartbeat after which a connection is lost. 0 is a
	// minute.
	Silence time.Duration
}

// An Event is an event of a topic. ID is empty for live topics.
type Event struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	Data  string `json:"data"`
}

// A Gap says which events do not come: of each topic those with ids after After, up to and including
// Last. The Reason is retention, epoch or slow.
type Gap struct {
	Reason string `json:"reason"`
	Missed []Miss `json:"missed"`
}

// A Miss is the part of a Gap that is of one topic. After and Last are empty for live topics.
type Miss struct {
	Topic string `json:"topic"`
	After string `json:"after"`
	Last  string `json:"last"`
}

// A Subscription is to one or several topics, up to 64, which may have wildcards.
type Subscription struct {
	Topics []string
	// After is the position of the subscription: events that come after it are given to OnEvent.
	// Empty is the end of the stream. Subscribe moves it on. A program that stores it between two
	// calls of OnEvent, beside what it has made of the events, can go on after a restart with the
	// same topics in the same order.
	After string
	// Last makes a subscription without After begin with the last events that are stored, so many
	// of each topic, up to 1000 of all.
	Last int
	// OnEvent is called for each event, one after the other. An error ends Subscribe.
	OnEvent func(Event) error
	// OnGap, if not nil, is called when events are missing.
	OnGap func(Gap)
	// OnState, if not nil, is called with nil when there is a connection, and with the reason when
	// it is lost.
	OnState func(error)
}

// A RefusedError is what the gateway has refused a request with, so that another attempt makes no
// sense.
type RefusedError struct {
	Status int
	Text   string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("gateway: %d: %s", e.Status, e.Text) }

var errIncomplete = errors.New("gateway: Nodes, Topics and OnEvent are required")

// Subscribe serves a subscription until ctx is done, OnEvent fails, or the gateway refuses it, and
// returns the cause. When a connection is lost, it goes on at the next node.
func (c *Client) Subscribe(ctx context.Context, s *Subscription) error {
	if len(c.Nodes) == 0 || len(s.Topics) == 0 || s.OnEvent == nil {
		return errIncomplete
	}
	turn := rand.IntN(len(c.Nodes)) // clients are spread over the nodes
	for failures := 0; ; failures++ {
		err := c.listen(ctx, c.Nodes[turn%len(c.Nodes)], s, &failures)
		var program *programError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &program):
			return program.error
		case errors.As(err, new(*RefusedError)):
			return err
		}
		if s.OnState != nil {
			s.OnState(err)
		}
		turn++
		if err := c.pause(ctx, failures, err); err != nil {
			return err
		}
	}
}

// A programError is an error of OnEvent.
type programError struct{ error }

// listen serves one connection, until it is lost. It sets failures to 0 when there is one.
func (c *Client) listen(ctx context.Context, node string, s *Subscription, failures *int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := cmp.Or(c.Silence, time.Minute)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	query := url.Values{"topic": s.Topics, "format": {"json"}}
	if s.After == "" && s.Last > 0 {
		query.Set("last", strconv.Itoa(s.Last))
	}
	answer, err := c.do(ctx, http.MethodGet, node+"/events?"+query.Encode(), nil, "Last-Event-ID", s.After)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	*failures = 0
	var refreshing sync.WaitGroup
	defer refreshing.Wait()
	defer cancel(nil)
	if seconds, _ := strconv.Atoi(answer.Header.Get("Push-Expires-In")); seconds > 0 && c.Token != nil {
		address := node + "/connection?client=" + url.QueryEscape(answer.Header.Get("Push-Client"))
		refreshing.Go(func() { c.refresh(ctx, address, seconds) })
	}
	if s.OnState != nil {
		s.OnState(nil)
	}
	in := bufio.NewReader(answer.Body)
	for {
		b, err := readBlock(in)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		silent.Reset(silence)
		if err := s.take(b); err != nil {
			return err
		}
	}
}

// refresh gives a connection a new token before it expires, which is after so many seconds, until ctx
// is done or that fails. The connection ends at its time then, and there is another one.
func (c *Client) refresh(ctx context.Context, address string, seconds int) {
	for seconds > 0 {
		select {
		case <-time.After(time.Duration(seconds) * time.Duration(600+rand.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		token, err := c.Token(ctx)
		if err != nil {
			return
		}
		var q, a struct {
			Refresh   *refresh `json:"refresh,omitempty"`
			Refreshed *refresh `json:"refreshed,omitempty"`
		}
		q.Refresh = &refresh{Token: token}
		body, err := json.Marshal(q)
		if err != nil {
			return
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return
		}
		answer, err := c.sendWith(r, token)
		if err != nil {
			return
		}
		err = json.NewDecoder(answer.Body).Decode(&a)
		answer.Body.Close()
		if err != nil || a.Refreshed == nil {
			return
		}
		seconds = a.Refreshed.ExpiresIn
	}
}

// A refresh is what a connection is given, or the answer.
type refresh struct {
	Token     string `json:"token,omitempty"`
	ExpiresIn int    `json:"expires_in,omitempty"`
}

var errSilent = errors.New("gateway: the node is silent")

// A block is one of Server-Sent Events.
type block struct{ id, name, data string }

func readBlock(in *bufio.Reader) (b block, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return b, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return b, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			b.id = value
		case "event":
			b.name = value
		case "data": // JSON, which has no line breaks
			b.data = value
		}
	}
}

// take handles a block. The position moves on after the event was handled.
func (s *Subscription) take(b block) error {
	switch {
	case b.name == "gap":
		var g Gap
		if err := json.Unmarshal([]byte(b.data), &g); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		if s.OnGap != nil {
			s.OnGap(g)
		}
	case b.name == "disconnected":
		return &RefusedError{http.StatusForbidden, b.name}
	case b.name == "unsubscribed":
		return &RefusedError{http.StatusForbidden, b.name + ": " + b.data}
	case b.data != "":
		var e Event
		if err := json.Unmarshal([]byte(b.data), &e); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		if err := s.OnEvent(e); err != nil {
			return &programError{err}
		}
	}
	if b.id != "" {
		s.After = b.id
	}
	return nil
}

// A Receipt is the answer to a publish. ID is empty for live topics.
type Receipt struct {
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate"` // an event with the key was stored before
}

// Publish publishes an event. It tries all nodes until one has stored it, or ctx is done. Attempts
// with the same key are one event. An empty key stands for one that no other event has.
func (c *Client) Publish(ctx context.Context, topic, data, key string) (r Receipt, err error) {
	key = cmp.Or(key, crand.Text())
	path := "/publish?topic=" + url.QueryEscape(topic)
	err = c.call(ctx, http.MethodPost, path, data, key, &r)
	return r, err
}

// Disconnect ends the connections of a user, who is the subject of their tokens, or one connection
// by its id. If both are given, both must match. The token needs the claim control. Nodes do that
// after Disconnect has returned.
func (c *Client) Disconnect(ctx context.Context, user, client string) error {
	query := url.Values{"user": {user}, "client": {client}}
	return c.call(ctx, http.MethodPost, "/disconnect?"+query.Encode(), "", "", new(struct{}))
}

// Unsubscribe ends the subscriptions of a user or a connection to a topic, as Disconnect does for
// connections.
func (c *Client) Unsubscribe(ctx context.Context, topic, user, client string) error {
	query := url.Values{"topic": {topic}, "user": {user}, "client": {client}}
	return c.call(ctx, http.MethodPost, "/unsubscribe?"+query.Encode(), "", "", new(struct{}))
}

// A Member is a connection that is subscribed to a topic. User is the subject of its token.
type Member struct {
	Client string `json:"client"`
	User   string `json:"user"`
}

// A Presence is the Data of an event of the topic $presence.T, as JSON: who is on topic T. The
// first one of a connection has all Members, and those that follow one that has joined or left.
type Presence struct {
	Members     []Member `json:"members"`
	Full        bool     `json:"full"` // there may be more members
	Join, Leave *Member
}

// Members returns who is on a topic.
func (c *Client) Members(ctx context.Context, topic string) (p Presence, err error) {
	err = c.call(ctx, http.MethodGet, "/presence?topic="+url.QueryEscape(topic), "", "", &p)
	return p, err
}

// call makes a request until a node has answered it, or refused it, or ctx is done.
func (c *Client) call(ctx context.Context, method, path, body, key string, answer any) error {
	if len(c.Nodes) == 0 {
		return errIncomplete
	}
	turn := rand.IntN(len(c.Nodes))
	for failures := 0; ; failures++ {
		node := c.Nodes[turn%len(c.Nodes)]
		got, err := c.do(ctx, method, node+path, strings.NewReader(body), "Idempotency-Key", key)
		if err == nil {
			err = json.NewDecoder(got.Body).Decode(answer)
			got.Body.Close()
		}
		if err == nil || errors.As(err, new(*RefusedError)) {
			return err
		}
		turn++
		if err := c.pause(ctx, failures, err); err != nil {
			return err
		}
	}
}

// A busyError is an answer that asks to come back.
type busyError struct {
	text string
	wait time.Duration
}

func (e *busyError) Error() string { return "gateway: " + e.text }

// do makes a request, and returns an answer that says that it has worked.
func (c *Client) do(ctx context.Context, method, url string, body io.Reader, header, value string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, &RefusedError{0, err.Error()}
	}
	if value != "" {
		r.Header.Set(header, value)
	}
	return c.send(r)
}

// send sends a request with the token, and returns an answer that says that it has worked.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	if c.Token == nil {
		return c.sendWith(r, "")
	}
	token, err := c.Token(r.Context())
	if err != nil {
		return nil, err
	}
	return c.sendWith(r, token)
}

// sendWith is send with a token, unless that is empty.
func (c *Client) sendWith(r *http.Request, token string) (*http.Response, error) {
	ctx := r.Context()
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := cmp.Or(c.HTTP, http.DefaultClient).Do(r)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized && c.Token != nil: // the next one may be valid
	case !isLater(status):
		return nil, &RefusedError{status, strings.TrimSpace(string(text))}
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return nil, &busyError{strings.TrimSpace(string(text)), time.Duration(seconds) * time.Second}
}

// isLater reports whether another attempt may work where one had this status.
func isLater(status int) bool { return status >= 500 || status == http.StatusTooManyRequests }

// pause waits before the attempt after so many that have failed, because of err. It returns the cause
// of ctx if that is done first.
func (c *Client) pause(ctx context.Context, failures int, err error) error {
	d, most := cmp.Or(c.Retry, 500*time.Millisecond), cmp.Or(c.MaxRetry, 15*time.Second)
	for range failures / len(c.Nodes) {
		d = min(2*d, most)
	}
	d = d/2 + rand.N(d) // not all clients come back at once
	var busy *busyError
	if errors.As(err, &busy) {
		d = max(d, busy.wait)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
