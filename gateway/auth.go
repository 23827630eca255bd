package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/keys"
	"github.com/socknotify/socknotify/gateway/internal/mercure"
)

// A Grant is what a client may do. Read and Write are topics, or filters with wildcards that cover
// them. A filter that a client subscribes to must be covered by one of Read. A filter that begins
// with * covers no live topics; > covers all.
type Grant struct {
	Read, Write []string
	// Presence are the topics of which the client may know who is there.
	Presence []string
	// Control allows it to disconnect and to unsubscribe clients, by POST to /disconnect and
	// /unsubscribe.
	Control bool
	// Subject names the client's user. Connections with the same one share the limits of a client,
	// and can be disconnected by it.
	Subject string
	// Mercure is what the client may do by Mercure's protocol, where the other fields but Control,
	// Subject and Expires have no meaning.
	Mercure MercureGrant
	Expires time.Time // when the client is disconnected; zero is never
}

// ErrNoToken is returned by an authorization for a request without a token. It is answered with the status 401, like every
// other error.
var ErrNoToken = access.ErrNoToken

// TokenCookie is the name of the cookie, and TokenParameter of the parameter in the query, that may have a token.
const (
	TokenCookie    = "push_token"
	TokenParameter = "token"
)

// Token returns the token of a request: from the header Authorization, a cookie, or the query. The last is for EventSource
// and WebSocket in browsers, which cannot set headers. The gateway writes no query to a log. For
// requests of Mercure's protocol the cookie is [MercureCookie] and the parameter is
// [MercureParameter], which counts before the cookie.
func Token(r *http.Request) string {
	if mercure.Is(r) {
		return mercure.Token(r)
	}
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(t)
	}
	if c, err := r.Cookie(TokenCookie); err == nil && c.Value != "" {
		return c.Value
	}
	return r.URL.Query().Get(TokenParameter)
}

// A Require is what tokens must have besides a signature, for keys with which tokens for others are
// signed too. An empty field requires nothing.
type Require struct {
	Issuer   string // the claim "iss"
	Audience string // the claim "aud", or one of them
}

// JWT returns an authorization by signed tokens. key is as jwt.Parser expects for the method: a []byte for HS256, an
// ed25519.PublicKey for EdDSA, an *rsa.PublicKey for RS256, an *ecdsa.PublicKey for ES256. Tokens must expire, but for those
// of Mercure's protocol, and be signed by that method, and have what require says. There is one key, so their "kid" has no
// meaning; one with "crit" is refused.
func JWT(method string, key any, require ...Require) func(*http.Request) (Grant, error) {
	return tokens(func(context.Context, *jwt.Token) (any, error) { return key, nil }, require, method)
}

// tokens returns an authorization by tokens of some methods, whose keys keyOf returns.
func tokens(key keys.KeyOf, require []Require, methods ...string) func(*http.Request) (Grant, error) {
	var options []jwt.ParserOption
	for _, r := range require {
		if r.Issuer != "" {
			options = append(options, jwt.WithIssuer(r.Issuer))
		}
		if r.Audience != "" {
			options = append(options, jwt.WithAudience(r.Audience))
		}
	}
	v := keys.NewVerifier(key, options, methods...)
	return func(r *http.Request) (Grant, error) {
		token, lasting := Token(r), mercure.Is(r)
		if token == "" {
			return Grant{}, ErrNoToken
		}
		c, err := v.Verify(r.Context(), token, lasting)
		if err != nil {
			return Grant{}, err
		}
		if lasting && !c.HasMercure { // a token for something else, and perhaps one that lasts
			return Grant{}, fmt.Errorf("%w with the claim mercure", ErrNoToken)
		}
		for _, t := range slices.Concat(c.Push.Read, c.Push.Write, c.Push.Presence) {
			if err := event.CheckTopic(t, true); err != nil {
				return Grant{}, fmt.Errorf("gateway: token: %w", err)
			}
		}
		if len(c.Subject) > access.MaxSubject {
			return Grant{}, access.ErrSubject
		}
		grant := Grant{Read: c.Push.Read, Write: c.Push.Write, Presence: c.Push.Presence,
			Control: c.Push.Control, Subject: c.Subject, Mercure: MercureGrant(c.Mercure)}
		if c.ExpiresAt != nil {
			grant.Expires = c.ExpiresAt.Time
		}
		return grant, nil
	}
}

// grantOf returns a Grant as the packages below have it.
func grantOf(g Grant) access.Grant {
	return access.Grant{Read: g.Read, Write: g.Write, Presence: g.Presence, Control: g.Control, Subject: g.Subject,
		Expires: g.Expires, Mercure: access.MercureGrant{Publish: g.Mercure.Publish, Subscribe: g.Mercure.Subscribe, Payload: g.Mercure.Payload}}
}
