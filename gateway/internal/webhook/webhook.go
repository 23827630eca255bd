package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/outbound"

	crand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A Config has the addresses of webhooks, as gateway.Webhooks does.
type Config struct {
	Connect, Subscribe, Publish, Disconnect string
	Secret                                  []byte
	Timeout                                 time.Duration
	Private                                 bool
	AllowFailed                             bool
}

const (
	minSecret      = 24
	maxAnswer      = 64 << 10 // bytes
	maxRequests    = 64       // requests under way to an address
	keptConns      = 16       // connections that are kept while no request needs them
	maxDisconnects = 1000     // disconnects that are not told yet; others are dropped
	tellers        = 4        // that tell disconnects
)

// Check reports what is wrong with the fields.
func (w *Config) Check() error {
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

// A Request is what a webhook is asked or told.
type Request struct {
	Client    string  `json:"client,omitempty"`
	Transport string  `json:"transport"` // websocket, sse or poll; http for an event by POST
	Protocol  string  `json:"protocol"`
	Encoding  string  `json:"encoding"`
	User      string  `json:"user"`
	Channel   string  `json:"channel,omitempty"`
	Data      *string `json:"data,omitempty"`
}

// A reply has one of the three: Result allows what was asked for.
type reply struct {
	Result *Result `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Disconnect *struct {
		Reason string `json:"reason"`
	} `json:"disconnect"`
}

// A Result is what Connect may say of a client.
type Result struct {
	User     string `json:"user"`
	ExpireAt int64  `json:"expire_at"` // seconds since 1970
}

// Hooks calls the webhooks. A nil one has none.
type Hooks struct {
	Config
	client *http.Client
	slots  map[string]chan struct{} // of each address, so that one that hangs stops no other
	gone   chan Request
	ctx    context.Context // of the tellers
	cancel context.CancelFunc
	ended  sync.Once
	work   sync.WaitGroup
	fail   func(address string, err error)
	called atomic.Uint64 // requests
	failed atomic.Uint64 // those without a valid answer
}

// New returns the hooks, or nil if there are none. fail is called for each request without a
// valid answer.
func New(w Config, fail func(address string, err error)) *Hooks {
	if w.Connect+w.Subscribe+w.Publish+w.Disconnect == "" {
		return nil
	}
	w.Timeout = cmp.Or(w.Timeout, time.Second)
	h := &Hooks{Config: w, slots: make(map[string]chan struct{}), gone: make(chan Request, maxDisconnects)}
	for _, address := range []string{w.Connect, w.Subscribe, w.Publish, w.Disconnect} {
		h.slots[address] = make(chan struct{}, maxRequests)
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	t := outbound.Transport(w.Private, w.Timeout)
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = keptConns, time.Minute
	t.MaxResponseHeaderBytes = maxAnswer
	h.client = &http.Client{Transport: t, CheckRedirect: outbound.NoRedirect}
	h.fail = func(address string, err error) {
		h.failed.Add(1)
		fail(address, err)
	}
	for range tellers {
		h.work.Go(func() {
			for q := range h.gone {
				h.Ask(h.ctx, h.Disconnect, q)
			}
		})
	}
	return h
}

// Close ends the tellers, which have a Timeout to tell what they have not told yet. No client may
// go after that.
func (h *Hooks) Close() {
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

// Calls returns the number of requests, and of those without a valid answer.
func (h *Hooks) Calls() (made, failed uint64) {
	if h == nil {
		return 0, 0
	}
	return h.called.Load(), h.failed.Load()
}

// Left tells that a client has gone, soon.
func (h *Hooks) Left(client, user, transport string) {
	if h == nil || h.Disconnect == "" {
		return
	}
	select {
	case h.gone <- NewRequest(client, transport, user):
	default:
		h.fail(h.Disconnect, errTooManyGone)
	}
}

var errTooManyGone = errors.New("too many clients have gone")

func NewRequest(client, transport, user string) Request {
	return Request{Client: client, Transport: transport, Protocol: "json", Encoding: "json",
		User: user}
}

// Ask asks a webhook. It returns ErrNoAnswer if there is no valid answer, and a *Refusal if the client
// may not do what it wants.
func (h *Hooks) Ask(ctx context.Context, address string, q Request) (result Result, err error) {
	if address == "" {
		return result, nil
	}
	h.called.Add(1)
	answer, err := h.call(ctx, address, event.Encode(q))
	switch {
	case err != nil:
		h.fail(address, err)
		if h.AllowFailed {
			return result, nil
		}
		return result, ErrNoAnswer
	case answer.Result != nil:
		return *answer.Result, nil
	}
	text := "not allowed"
	if answer.Error != nil {
		text = cmp.Or(answer.Error.Message, text)
	} else {
		text = cmp.Or(answer.Disconnect.Reason, text)
	}
	if q.Channel != "" {
		text = fmt.Sprintf("topic %q: %s", q.Channel, text)
	}
	return result, &Refusal{text}
}

// AskPublish asks whether a client may publish an event, as ask does.
func (h *Hooks) AskPublish(ctx context.Context, q Request, topic, data string) error {
	if h == nil || h.Publish == "" {
		return nil
	}
	q.Channel, q.Data = topic, &data
	_, err := h.Ask(ctx, h.Publish, q)
	return err
}

// A Refusal is the answer of a webhook that a client may not do what it wants. Its text is for the
// client.
type Refusal struct{ text string }

func (r *Refusal) Error() string { return r.text }

var (
	ErrNoAnswer = errors.New("gateway: the backend does not answer")
	errStatus   = errors.New("the answer is not 200")
	errLong     = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	errAnswer   = errors.New("the answer has not one of result, error and disconnect")
)

// call makes one request.
func (h *Hooks) call(ctx context.Context, address string, body []byte) (
	answer reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	slots := h.slots[address]
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	id, at := "msg_"+crand.Text(), strconv.FormatInt(time.Now().Unix(), 10)
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
		return answer, fmt.Errorf("%w: %s", errStatus, got.Status)
	}
	b, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer, err
	case len(b) > maxAnswer:
		return answer, errLong
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
		return answer, errAnswer
	}
	return answer, nil
}

// sign returns the signature of a request.
func sign(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
