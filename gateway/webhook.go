package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

// Webhooks are addresses of a backend that is asked before a client may do something, or is told
// what has happened. An empty one is none. The fields of requests and answers are those of
// Centrifugo's proxy, and the signature is that of Standard Webhooks.
type Webhooks struct {
	// Connect is asked for each request to subscribe, and Subscribe then for each of its topics.
	// Publish is asked for each event of an HTTP client. Disconnect is told when a client of
	// Server-Sent Events or WebSocket has gone. The addresses are https.
	Connect, Subscribe, Publish, Disconnect string
	// Secret signs the requests. At least 24 bytes are required.
	Secret []byte
	// Timeout bounds an answer. 0 is a second.
	Timeout time.Duration
	// Private allows addresses that are loopback, link-local or private, and the others of
	// [park.IsInside], and http.
	Private bool
	// AllowFailed lets clients do what was asked for when there is no valid answer. By default they
	// get the status 503.
	AllowFailed bool
}

const (
	minSecret      = 24
	maxHookAnswer  = 64 << 10 // bytes
	maxHooks       = 64       // requests under way
	keptHooks      = 16       // connections that are kept while no request needs them
	maxDisconnects = 1000     // disconnects that are not told yet; others are dropped
	tellers        = 4        // that tell disconnects
)

// check reports what is wrong with the fields.
func (w *Webhooks) check() error {
	any := false
	for _, address := range []string{w.Connect, w.Subscribe, w.Publish, w.Disconnect} {
		if address == "" {
			continue
		}
		any = true
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !w.Private) {
			return errors.New("want https addresses; http needs Private")
		}
	}
	if any && len(w.Secret) < minSecret {
		return fmt.Errorf("want a Secret of at least %d bytes", minSecret)
	}
	return nil
}

// A hookRequest is what a webhook is asked or told.
type hookRequest struct {
	Client    string  `json:"client,omitempty"`
	Transport string  `json:"transport"` // websocket, sse or poll; http for an event by POST
	Protocol  string  `json:"protocol"`
	Encoding  string  `json:"encoding"`
	User      string  `json:"user"`
	Channel   string  `json:"channel,omitempty"`
	Data      *string `json:"data,omitempty"`
}

// A hookAnswer has one of the three: Result allows what was asked for.
type hookAnswer struct {
	Result *hookResult `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Disconnect *struct {
		Reason string `json:"reason"`
	} `json:"disconnect"`
}

// A hookResult is what Connect may say of a client.
type hookResult struct {
	User     string `json:"user"`
	ExpireAt int64  `json:"expire_at"` // seconds since 1970
}

// hooks calls the webhooks. A nil one has none.
type hooks struct {
	Webhooks
	client *http.Client
	slots  chan struct{}
	gone   chan hookRequest
	ctx    context.Context // of the tellers
	cancel context.CancelFunc
	ended  sync.Once
	work   sync.WaitGroup
	fail   func(address string, err error)
	called func()
}

// newHooks returns the hooks of a gateway, or nil if there are none.
func (g *Gateway) newHooks(w Webhooks) *hooks {
	if w.Connect+w.Subscribe+w.Publish+w.Disconnect == "" {
		return nil
	}
	w.Timeout = cmp.Or(w.Timeout, time.Second)
	h := &hooks{Webhooks: w, slots: make(chan struct{}, maxHooks),
		gone: make(chan hookRequest, maxDisconnects)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	t := outbound(w.Private, w.Timeout)
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = keptHooks, time.Minute
	t.MaxResponseHeaderBytes = maxHookAnswer
	h.client = &http.Client{Transport: t, CheckRedirect: noRedirect}
	h.called = func() { g.hub.count.hooks.Add(1) }
	h.fail = func(address string, err error) {
		g.hub.count.hookFailures.Add(1)
		g.log.Log(slog.LevelWarn, "a webhook has failed", "address", address, "err", err)
	}
	for range tellers {
		h.work.Go(func() {
			for q := range h.gone {
				h.ask(h.ctx, h.Disconnect, q)
			}
		})
	}
	return h
}

// close ends the tellers, which have a Timeout to tell what they have not told yet. No client may
// go after that.
func (h *hooks) close() {
	if h == nil {
		return
	}
	h.ended.Do(func() { close(h.gone) })
	late := time.AfterFunc(h.Timeout, h.cancel)
	h.work.Wait()
	late.Stop()
	h.cancel()
	h.client.CloseIdleConnections()
}

// left tells that a client has gone, soon.
func (h *hooks) left(clients *clientSet, s *subscriber, transport string) {
	if h == nil || h.Disconnect == "" {
		return
	}
	select {
	case h.gone <- newHookRequest(clients.name(s.id), transport, s.user):
	default:
		h.fail(h.Disconnect, errTooManyGone)
	}
}

var errTooManyGone = errors.New("too many clients have gone")

func newHookRequest(client, transport, user string) hookRequest {
	return hookRequest{Client: client, Transport: transport, Protocol: "json", Encoding: "json",
		User: user}
}

// ask asks a webhook, and returns why the client may not do what it wants, or nil.
func (h *hooks) ask(ctx context.Context, address string, q hookRequest) (
	result hookResult, f *denial) {
	if address == "" {
		return result, nil
	}
	h.called()
	answer, err := h.call(ctx, address, encode(q))
	switch {
	case err != nil:
		h.fail(address, err)
		if h.AllowFailed {
			return result, nil
		}
		return result, &denial{http.StatusServiceUnavailable, errNoAnswer.Error(), time.Second}
	case answer.Result != nil:
		return *answer.Result, nil
	}
	f = &denial{status: http.StatusForbidden}
	if f.text = "not allowed"; answer.Error != nil {
		f.text = cmp.Or(answer.Error.Message, f.text)
	} else {
		f.text = cmp.Or(answer.Disconnect.Reason, f.text)
	}
	if q.Channel != "" {
		f.text = fmt.Sprintf("topic %q: %s", q.Channel, f.text)
	}
	return result, f
}

var (
	errNoAnswer   = errors.New("gateway: the backend does not answer")
	errHookStatus = errors.New("the answer is not 200")
	errHookLong   = fmt.Errorf("the answer has more than %d bytes", maxHookAnswer)
	errHookAnswer = errors.New("the answer has not one of result, error and disconnect")
)

// call makes one request.
func (h *hooks) call(ctx context.Context, address string, body []byte) (
	answer hookAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	id, at := "msg_"+crand.Text(), strconv.FormatInt(clock.Current().Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", "v1,"+sign(h.Secret, id, at, body))
	got, err := h.client.Do(r)
	if err != nil {
		return answer, err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%w: %s", errHookStatus, got.Status)
	}
	b, err := io.ReadAll(io.LimitReader(got.Body, maxHookAnswer+1))
	switch {
	case err != nil:
		return answer, err
	case len(b) > maxHookAnswer:
		return answer, errHookLong
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return answer, err
	}
	n := 0
	for _, has := range []bool{answer.Result != nil, answer.Error != nil, answer.Disconnect != nil} {
		if has {
			n++
		}
	}
	if n != 1 {
		return answer, errHookAnswer
	}
	return answer, nil
}

// sign returns the signature of a request.
func sign(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// transports are the names of the ways to subscribe, by path.
var transports = map[string]string{"/events": "sse", socketPath: "websocket", "/poll": "poll",
	mercurePath: "sse"}

// consult asks whether a client may connect, and subscribe to its topics.
func (g *Gateway) consult(r *http.Request, a *ask) *denial {
	h := g.hooks
	if h == nil {
		return nil
	}
	q := newHookRequest(g.hub.clients.name(a.id), transports[r.URL.Path], a.user)
	result, f := h.ask(r.Context(), h.Connect, q)
	if f != nil {
		return f
	}
	if result.User != "" {
		a.user = strings.Clone(result.User[:min(len(result.User), maxSubject)])
		q.User, a.client = a.user, g.keyOf(a.user, r.RemoteAddr)
	}
	if at := result.ExpireAt; at > 0 && (a.expires == 0 || at < a.expires) {
		a.expires = at
	}
	if h.Subscribe == "" {
		return nil
	}
	topics := a.topics()
	denials := make([]*denial, len(topics))
	var asking sync.WaitGroup
	for i, topic := range topics {
		asking.Go(func() {
			q := q
			q.Channel = topic
			_, denials[i] = h.ask(r.Context(), h.Subscribe, q)
		})
	}
	asking.Wait()
	return cmp.Or(denials...)
}

// topics are what a request wants, as its client has written it.
func (a *ask) topics() (all []string) {
	if a.mercure != nil {
		return a.mercure.topics
	}
	for _, w := range a.wants {
		all = append(all, w.filter)
	}
	return all
}

// askPublish asks whether a client may publish an event. It returns why not, or nil.
func (h *hooks) askPublish(ctx context.Context, q hookRequest, topic, data string) *denial {
	if h == nil || h.Publish == "" {
		return nil
	}
	q.Channel, q.Data = topic, &data
	_, f := h.ask(ctx, h.Publish, q)
	return f
}

// publishFor publishes an event of a client, if the webhook allows it.
func (g *Gateway) publishFor(ctx context.Context, q hookRequest, topic string, data []byte,
	key string) (receipt Receipt, f *denial) {
	if f := g.hooks.askPublish(ctx, q, topic, string(data)); f != nil {
		return receipt, f
	}
	receipt, err := g.Publish(ctx, topic, data, key)
	if err != nil {
		f = denialOf(err)
	}
	return receipt, f
}
