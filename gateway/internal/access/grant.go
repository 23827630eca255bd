package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A Grant is what a client may do, as gateway.Grant says.
type Grant struct {
	Read, Write, Presence []string
	Control               bool
	Subject               string
	Expires               time.Time
	Mercure               MercureGrant
}

// A MercureGrant is what a client may do by Mercure's protocol, as gateway.MercureGrant says.
type MercureGrant struct {
	Publish, Subscribe []string
	Payload            json.RawMessage
}

// MaxSubject bounds the bytes of a client's subject.
const MaxSubject = 256

var ErrSubject = fmt.Errorf("gateway: token: the subject has more than %d bytes", MaxSubject)

// ErrNoToken is that of package gateway.
var ErrNoToken = errors.New("gateway: no token")

// everything is what a client may do without tokens. There are no users then whom it could
// disconnect.
var everything = Grant{Read: []string{">"}, Write: []string{">"}, Presence: []string{">"}}

// Rights are the part of a grant that a connection keeps. They are not changed.
type Rights struct{ Read, Write, Presence []string }

// MayRead reports whether a client may subscribe to a topic.
func (g *Rights) MayRead(filter string) bool {
	if of, ok := event.PresenceOf(filter); ok {
		return event.Allows(g.Presence, of)
	}
	return event.Allows(g.Read, filter)
}

var allRights = Rights{everything.Read, everything.Write, everything.Presence} // shared by all clients without tokens

// RightsOf returns the rights of a grant.
func (c *Control) RightsOf(g *Grant) *Rights {
	if c.Config.Authorize == nil {
		return &allRights
	}
	return &Rights{g.Read, g.Write, g.Presence}
}

// Permission asks the hook what the sender of a request may do.
func (c *Control) Permission(r *http.Request) (Grant, error) {
	if c.Config.Authorize == nil {
		return everything, nil
	}
	g, err := c.Config.Authorize(r)
	if err == nil && !g.Expires.IsZero() && !g.Expires.After(time.Now()) {
		err = ErrExpired
	}
	return g, err
}

// Authorize is permission. If the hook refuses, authorize answers the request and returns false.
func (c *Control) Authorize(w http.ResponseWriter, r *http.Request) (Grant, bool) {
	g, err := c.Permission(r)
	if err != nil {
		c.DenyToken(w)
		return Grant{}, false
	}
	return g, true
}

// DenyToken answers a request whose token is not valid.
func (c *Control) DenyToken(w http.ResponseWriter) {
	c.Denied.Add(1)
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "not authorized", http.StatusUnauthorized) // the reason is not for the client
}
