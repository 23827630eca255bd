package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"golang.org/x/time/rate"

	"github.com/socknotify/socknotify"
)

// JWKS describes a set of public keys (RFC 7517) that a server publishes. Tokens are signed with one
// of them, by RS256, ES256 or EdDSA, and name it in their header "kid".
type JWKS struct {
	// URL is the address of the set. It must be https, and is not redirected.
	URL string
	// Private allows a server whose address is loopback, link-local or private.
	Private bool
	// Client is nil for one of the gateway's own. One that is given is not bound by Private, and must
	// bound what it reads itself.
	Client *http.Client
	// Logger is nil for slog.Default.
	Logger *slog.Logger
}

const (
	jwksTimeout  = 10 * time.Second
	jwksInterval = time.Hour        // between two looks at the set
	jwksUnknown  = 10 * time.Second // between two looks because of a key that is unknown
	jwksPatience = time.Second      // of a request whose key is unknown
	maxJWKS      = 1 << 20          // bytes of the set
)

// Authorize returns an authorization by tokens that are signed with a key of the set. It is read
// again each hour, and for a key that it does not have, at most every ten seconds, until ctx is done.
// As long as it could not be read, there are no keys.
func (j JWKS) Authorize(ctx context.Context) (func(*http.Request) (Grant, error), error) {
	if u, err := url.Parse(j.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("gateway: %w: the URL of a JWKS must be https", socknotify.ErrInvalid)
	}
	log, client := j.Logger, j.Client
	if log == nil {
		log = slog.Default()
	}
	if client == nil {
		client = j.client()
	}
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{j.URL}, keyfunc.Override{
		Client: client, HTTPTimeout: jwksTimeout, RefreshInterval: jwksInterval,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(jwksUnknown), 1), RateLimitWaitMax: jwksPatience,
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) {
				log.Warn("gateway: cannot read the keys of tokens", "err", err)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: JWKS: %w", err)
	}
	return tokens(keys.Keyfunc, "RS256", "ES256", "EdDSA"), nil
}

var errPrivate = errors.New("the address is not public")

// client returns a client that follows no redirect and reads no more than a set may have.
func (j JWKS) client() *http.Client {
	t := outbound(j.Private, jwksTimeout)
	t.DisableKeepAlives = true
	return &http.Client{Transport: bounded{t}, CheckRedirect: noRedirect}
}

// outbound returns a transport for requests to a server of the configuration, without a proxy. If
// private is false it connects to public addresses alone, whatever names stand for.
func outbound(private bool, timeout time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: timeout}
	if !private {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if ip := to.Addr().Unmap(); err != nil || !ip.IsGlobalUnicast() || ip.IsPrivate() {
				return errPrivate
			}
			return nil
		}
	}
	return &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: timeout}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// bounded is a transport whose answers have at most maxJWKS bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxJWKS)
	}
	return answer, err
}
