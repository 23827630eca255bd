package keys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Claims are the claims of a token, such as
//
//	{"sub":"alice","push":{"read":["orders.>"],"write":[]},"exp":1800000000}
//
// A name with capitals is that of another claim (RFC 7519, section 4).
type Claims struct {
	jwt.RegisteredClaims
	Push struct {
		Read     []string `json:"read"`
		Write    []string `json:"write"`
		Presence []string `json:"presence"`
		Control  bool     `json:"control"`
	} `json:"push"`
	Mercure struct {
		Publish   []string        `json:"publish"`
		Subscribe []string        `json:"subscribe"`
		Payload   json.RawMessage `json:"payload"`
	} `json:"mercure"`

	HasMercure bool `json:"-"` // there is such a claim
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Claims) UnmarshalJSON(b []byte) error {
	var push, mercure json.RawMessage
	if err := exactly(b, map[string]any{"iss": &c.Issuer, "sub": &c.Subject, "aud": &c.Audience,
		"exp": &c.ExpiresAt, "nbf": &c.NotBefore, "iat": &c.IssuedAt, "push": &push, "mercure": &mercure,
	}); err != nil {
		return err
	}
	c.HasMercure = mercure != nil && string(mercure) != "null"
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

// A verifier verifies tokens. Its methods may be called concurrently.
type verifier struct {
	keyOf           KeyOf
	parser, lasting *jwt.Parser // lasting takes tokens that do not expire
}

// A KeyOf returns the keys with which a token may be signed, as jwt.Keyfunc does. The context is that
// of the request.
type KeyOf func(context.Context, *jwt.Token) (any, error)

// NewVerifier returns a verifier of tokens of some methods, with what options ask for.
func NewVerifier(key KeyOf, options []jwt.ParserOption, methods ...string) *verifier {
	options = append(options, jwt.WithValidMethods(methods))
	return &verifier{key, jwt.NewParser(append(options[:len(options):len(options)], jwt.WithExpirationRequired())...),
		jwt.NewParser(options...)}
}

// Verify returns the claims of a token. It must expire unless lasting is set.
func (v *verifier) Verify(ctx context.Context, token string, lasting bool) (*Claims, error) {
	known := func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok { // RFC 7515, section 4.1.11: no extension is known here
			return nil, errCritical
		}
		return v.keyOf(ctx, t)
	}
	parser := v.parser
	if lasting { // Mercure leaves that to the issuer
		parser = v.lasting
	}
	c := new(Claims)
	if _, err := parser.ParseWithClaims(token, c, known); err != nil {
		return nil, fmt.Errorf("gateway: token: %w", err)
	}
	return c, nil
}

var errCritical = errors.New("the header has critical extensions")
