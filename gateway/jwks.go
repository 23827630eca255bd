package gateway

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/socknotify/socknotify/gateway/internal/keys"
)

// JWKS describes a set of public keys (RFC 7517) that a server publishes. Tokens are signed with one
// of them, by RS256, ES256 or EdDSA, and name it in their header "kid".
type JWKS struct {
	// URL is the address of the set. It must be https, and is not redirected.
	URL string
	// Private allows a server whose address is loopback, link-local or private, and the others of
	// [tunnel.IsInside].
	Private bool
	// Require is what the tokens must have. A server that signs tokens for others too needs it.
	Require Require
	// Client is nil for one of the gateway's own. One that is given is not bound by Private, and must
	// bound what it reads itself.
	Client *http.Client
	// Logger is nil for slog.Default.
	Logger *slog.Logger
}

// Authorize returns an authorization by tokens that are signed with a key of the set. It is read
// again each hour, and for a key that it does not have, at most every five seconds, until ctx is
// done. As long as it could not be read, there are no keys. A key that cannot be used is left out,
// and a warning names it.
func (j JWKS) Authorize(ctx context.Context) (func(*http.Request) (Grant, error), error) {
	k, err := keys.JWKS{URL: j.URL, Private: j.Private, Client: j.Client, Logger: j.Logger}.Keys(ctx)
	if err != nil {
		return nil, err
	}
	return tokens(k.Find, []Require{j.Require}, "RS256", "ES256", "EdDSA"), nil
}
