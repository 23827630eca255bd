package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
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

// maxSubject bounds the bytes of a token's subject.
const maxSubject = 256

// ErrNoToken is returned by an authorization for a request without a token. It is answered with the status 401, like every
// other error.
var ErrNoToken = errors.New("gateway: no token")

// everything is what a client may do without tokens. There are no users then whom it could
// disconnect.
var everything = Grant{Read: []string{">"}, Write: []string{">"}, Presence: []string{">"}}

// mayRead reports whether a client may subscribe to a topic.
func (g *Grant) mayRead(filter string) bool {
	if of, ok := presenceOf(filter); ok {
		return allows(g.Presence, of)
	}
	return allows(g.Read, filter)
}

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
	if isMercure(r) {
		return mercureToken(r)
	}
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(t)
	}
	if c, err := r.Cookie(TokenCookie); err == nil && c.Value != "" {
		return c.Value
	}
	return r.URL.Query().Get(TokenParameter)
}

// claims are the claims of a token, such as
//
//	{"sub":"alice","push":{"read":["orders.>"],"write":[]},"exp":1800000000}
//
// A name with capitals is that of another claim (RFC 7519, section 4).
type claims struct {
	jwt.RegisteredClaims
	Push struct {
		Read     []string `json:"read"`
		Write    []string `json:"write"`
		Presence []string `json:"presence"`
		Control  bool     `json:"control"`
	} `json:"push"`
	Mercure MercureGrant `json:"mercure"`

	mercure bool // there is such a claim
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(b []byte) error {
	var push, mercure json.RawMessage
	if err := exactly(b, map[string]any{"iss": &c.Issuer, "sub": &c.Subject, "aud": &c.Audience,
		"exp": &c.ExpiresAt, "nbf": &c.NotBefore, "iat": &c.IssuedAt, "push": &push, "mercure": &mercure,
	}); err != nil {
		return err
	}
	c.mercure = mercure != nil && string(mercure) != "null"
	p, m := &c.Push, &c.Mercure
	return errors.Join(
		exactly(push, map[string]any{"read": &p.Read, "write": &p.Write, "presence": &p.Presence, "control": &p.Control}),
		exactly(mercure, map[string]any{"publish": &m.Publish, "subscribe": &m.Subscribe, "payload": &m.Payload}))
}

// exactly decodes members of an object whose names are exactly these: package json takes other
// capitals for the same name.
func exactly(object []byte, members map[string]any) error {
	var all map[string]json.RawMessage
	if object != nil {
		if err := json.Unmarshal(object, &all); err != nil {
			return err
		}
	}
	for name, to := range members {
		if b, ok := all[name]; ok {
			if err := json.Unmarshal(b, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
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

// tokens returns an authorization by tokens of some methods, whose keys keyOf returns. Its context
// is the request's.
func tokens(keyOf func(context.Context, *jwt.Token) (any, error), require []Require,
	methods ...string) func(*http.Request) (Grant, error) {
	options := []jwt.ParserOption{jwt.WithValidMethods(methods)}
	for _, r := range require {
		if r.Issuer != "" {
			options = append(options, jwt.WithIssuer(r.Issuer))
		}
		if r.Audience != "" {
			options = append(options, jwt.WithAudience(r.Audience))
		}
	}
	lasting := jwt.NewParser(options...) // Mercure leaves that to the issuer
	parser := jwt.NewParser(append(options, jwt.WithExpirationRequired())...)
	return func(r *http.Request) (Grant, error) {
		known := func(t *jwt.Token) (any, error) {
			if _, ok := t.Header["crit"]; ok { // RFC 7515, section 4.1.11: no extension is known here
				return nil, errCritical
			}
			return keyOf(r.Context(), t)
		}
		token := Token(r)
		if token == "" {
			return Grant{}, ErrNoToken
		}
		var c claims
		parser := parser
		if isMercure(r) {
			parser = lasting
		}
		if _, err := parser.ParseWithClaims(token, &c, known); err != nil {
			return Grant{}, fmt.Errorf("gateway: token: %w", err)
		}
		if isMercure(r) && !c.mercure { // a token for something else, and perhaps one that lasts
			return Grant{}, fmt.Errorf("%w with the claim mercure", ErrNoToken)
		}
		for _, t := range slices.Concat(c.Push.Read, c.Push.Write, c.Push.Presence) {
			if err := checkTopic(t, true); err != nil {
				return Grant{}, fmt.Errorf("gateway: token: %w", err)
			}
		}
		if len(c.Subject) > maxSubject {
			return Grant{}, errSubject
		}
		grant := Grant{Read: c.Push.Read, Write: c.Push.Write, Presence: c.Push.Presence,
			Control: c.Push.Control, Subject: c.Subject, Mercure: c.Mercure}
		if c.ExpiresAt != nil {
			grant.Expires = c.ExpiresAt.Time
		}
		return grant, nil
	}
}

var errSubject = fmt.Errorf("gateway: token: the subject has more than %d bytes", maxSubject)

var errCritical = errors.New("the header has critical extensions")

// authorize asks the hook. If it refuses, authorize answers the request and returns false.
func (g *Gateway) authorize(w http.ResponseWriter, r *http.Request) (Grant, bool) {
	if g.config.Authorize == nil {
		return everything, true
	}
	grant, err := g.config.Authorize(r)
	if errors.Is(err, ErrNoToken) && isMercure(r) && r.Method == http.MethodGet &&
		r.URL.Path == mercurePath && g.config.Mercure.Anonymous {
		return Grant{}, true // for updates that are not private
	}
	if err == nil && !grant.Expires.IsZero() && !grant.Expires.After(time.Now()) {
		err = errExpired
	}
	if err != nil {
		g.denyToken(w)
		return Grant{}, false
	}
	return grant, true
}

// denyToken answers a request whose token is not valid.
func (g *Gateway) denyToken(w http.ResponseWriter) {
	g.hub.count.denied.Add(1)
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "not authorized", http.StatusUnauthorized) // the reason is not for the client
}
