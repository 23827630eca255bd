package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/outbound"
)

// A JWKS describes a set of keys, as gateway.JWKS does.
type JWKS struct {
	URL     string
	Private bool
	Client  *http.Client
	Logger  *slog.Logger
}

const (
	jwksTimeout  = 10 * time.Second // of a look at the set
	jwksInterval = time.Hour        // between two looks
	jwksUnknown  = 5 * time.Second  // between two looks because of keys that are unknown
	jwksPatience = 3 * time.Second  // of a request whose key is unknown
	maxJWKS      = 1 << 20          // bytes of the set
)

// Keys reads the set, and goes on to do so until ctx is done. It fails with socknotify.ErrInvalid for
// an address that is not https.
func (j JWKS) Keys(ctx context.Context) (*keySet, error) {
	if err := j.prepare(); err != nil {
		return nil, err
	}
	k := &keySet{JWKS: j, ctx: ctx, wake: make(chan struct{}, 1),
		looked: make(chan struct{})}
	k.hourly = time.AfterFunc(jwksInterval, k.lookSoon)
	k.look()
	go k.run()
	return k, nil
}

// Try reads the set once. It returns the number of keys that can be used, what is wrong with the others,
// and the time by the clock of the server, or zero.
func (j JWKS) Try(ctx context.Context) (usable int, odd []string, at time.Time, err error) {
	if err := j.prepare(); err != nil {
		return 0, nil, at, err
	}
	k := &keySet{JWKS: j, ctx: ctx}
	k.Client = &http.Client{CheckRedirect: j.Client.CheckRedirect, Transport: dated{j.Client.Transport, &at}}
	keys, odd, err := k.read()
	return len(keys), odd, at, err
}

// dated is a transport that notes the header Date of answers.
type dated struct {
	http.RoundTripper
	at *time.Time
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		*d.at, _ = http.ParseTime(answer.Header.Get("Date"))
	}
	return answer, err
}

// prepare checks the fields and sets the defaults.
func (j *JWKS) prepare() error {
	if u, err := url.Parse(j.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("gateway: %w: the URL of a JWKS must be https", socknotify.ErrInvalid)
	}
	if j.Logger == nil {
		j.Logger = slog.Default()
	}
	if j.Client == nil {
		j.Client = j.client()
	}
	return nil
}

// A keySet has the keys of a JWKS. One goroutine looks at the set, each hour and after a token has
// named a key that is unknown. A look belongs to no request, so it goes on when the request that has
// caused it has ended. The looks because of unknown keys are jwksUnknown apart, and each token with
// such a key is followed by one. So tokens with keys that do not exist, however many there are,
// delay a new key by no more than that.
type keySet struct {
	JWKS
	ctx    context.Context // ends the looks
	hourly *time.Timer
	wake   chan struct{} // makes run look
	warned string        // what the last warning said of keys that are left out; used by look

	mu      sync.Mutex
	keys    []publicKey
	looking bool
	due     time.Time     // when a look because of an unknown key begins; zero if there is none to begin
	next    time.Time     // when the one after that may begin
	looked  chan struct{} // closed when a look has ended
}

var errUnknownKey = errors.New("the key is unknown")

// Find returns the keys with which a token may be signed. If there are none, there will be a look at
// the set. find waits for one that is under way or begins now, as long as the request and
// jwksPatience last.
func (k *keySet) Find(ctx context.Context, t *jwt.Token) (any, error) {
	name, named := t.Header["kid"]
	kid, ok := name.(string)
	if named && !ok {
		return nil, errors.New("the kid is not a string")
	}
	k.mu.Lock()
	keys, known := match(k.keys, kid, named, t.Method.Alg())
	if known || !named {
		k.mu.Unlock()
		return keys, nil // an empty set verifies nothing
	}
	looked, soon := k.looked, k.request()
	k.mu.Unlock()
	if !soon {
		return nil, errUnknownKey
	}
	expired := make(chan struct{})
	patience := time.AfterFunc(jwksPatience, func() { close(expired) })
	defer patience.Stop()
	select {
	case <-looked:
	case <-expired:
		return nil, errUnknownKey
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-k.ctx.Done():
		return nil, errUnknownKey
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if keys, known = match(k.keys, kid, named, t.Method.Alg()); !known {
		return nil, errUnknownKey
	}
	return keys, nil
}

// request makes a look begin because of an unknown key, when it may. It reports whether a look is
// under way, or begins now. The caller holds k.mu.
func (k *keySet) request() (soon bool) {
	now := time.Now()
	if k.due.IsZero() {
		k.due = now
		if wait := k.next.Sub(now); wait > 0 {
			k.due = k.next
			time.AfterFunc(wait, k.lookSoon)
		} else {
			k.lookSoon()
		}
		k.next = k.due.Add(jwksUnknown)
	}
	return k.looking || !k.due.After(now)
}

// match returns the keys with an id, or all if the token names none, that are for an algorithm. It
// reports whether there is a key with the id.
func match(keys []publicKey, kid string, named bool, algorithm string) (found jwt.VerificationKeySet, known bool) {
	for _, key := range keys {
		if named && key.id != kid {
			continue
		}
		known = true
		if key.algorithm == algorithm {
			found.Keys = append(found.Keys, key.key)
		}
	}
	return found, known
}

// lookSoon makes run look at the set.
func (k *keySet) lookSoon() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run looks at the set when it is to, until the context is done.
func (k *keySet) run() {
	defer k.hourly.Stop()
	for {
		select {
		case <-k.wake:
			k.look()
		case <-k.ctx.Done():
			return
		}
	}
}

// look reads the set. Without a valid answer the keys stay as they are.
func (k *keySet) look() {
	k.mu.Lock()
	k.looking, k.due = true, time.Time{}
	k.mu.Unlock()
	k.hourly.Reset(jwksInterval)
	keys, odd, err := k.read()
	k.mu.Lock()
	if err == nil {
		k.keys = keys
	}
	k.looking = false
	close(k.looked)
	k.looked = make(chan struct{})
	k.mu.Unlock()
	text := strings.Join(odd, "; ")
	switch {
	case k.ctx.Err() != nil:
	case err != nil:
		k.Logger.Warn("gateway: cannot read the keys of tokens", "err", err)
	case text != k.warned:
		if k.warned = text; text != "" {
			k.Logger.Warn("gateway: keys of tokens are left out", "err", text)
		}
	}
}

// read makes one request for the set. odd has what is wrong with the keys that are left out.
func (k *keySet) read() (keys []publicKey, odd []string, err error) {
	ctx, cancel := context.WithTimeout(k.ctx, jwksTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL, nil)
	if err != nil {
		return nil, nil, err
	}
	answer, err := k.Client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the status is %s", answer.Status)
	}
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, nil, err
	}
	return parseKeys(b)
}

// client returns a client that follows no redirect and reads no more than a set may have.
func (j JWKS) client() *http.Client {
	t := outbound.Transport(j.Private, jwksTimeout)
	t.DisableKeepAlives = true
	return &http.Client{Transport: bounded{t}, CheckRedirect: outbound.NoRedirect}
}

// bounded is a transport whose answers have at most maxJWKS bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxJWKS)
	}
	return answer, err
}
