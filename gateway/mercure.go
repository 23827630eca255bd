package gateway

import (
	"encoding/json"

	"github.com/socknotify/socknotify/gateway/internal/mercure"
)

// MercureConfig enables the Mercure protocol, as draft-dunglas-mercure-07 describes it, under
// /.well-known/mercure. Its clients have a Grant.Mercure.
//
// All updates of Mercure are events of one topic of the gateway's own, in the order of the stream,
// and the position in the stream is their id. Each node compares an update with what its clients
// have asked for. So topics of Mercure are no topics of the gateway: no client of the one gets
// events of the other.
type MercureConfig struct {
	// Anonymous lets clients without a token subscribe. They get the updates that are not private.
	Anonymous bool
	// Subscriptions publishes an update when a subscription begins and when it ends, and answers
	// requests for the subscriptions that there are. Each is stored, which costs as much as an
	// update of a publisher.
	Subscriptions bool
}

// A MercureGrant is what a client may do by Mercure's protocol: the claim "mercure" of a token.
type MercureGrant struct {
	// Publish and Subscribe are topic selectors. Each topic of an update must match one of Publish.
	// A client gets a private update if one of its topics matches one of Subscribe.
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
	// Payload is JSON that others get with the client's subscriptions.
	Payload json.RawMessage `json:"payload"`
}

// MercureCookie is the name of the cookie, mercureAuthorization, and MercureParameter that of the
// parameter in the query, authorization, that may have a token of Mercure's protocol.
const (
	MercureCookie    = mercure.Cookie
	MercureParameter = mercure.Parameter
)
