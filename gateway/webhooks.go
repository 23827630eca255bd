package gateway

import "time"

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
	// [tunnel.IsInside], and http.
	Private bool
	// AllowFailed lets clients do what was asked for when there is no valid answer. By default they
	// get the status 503.
	AllowFailed bool
}
