// Package gateway pushes events to browsers and other HTTP clients, from one machine or from several.
//
// Clients subscribe to topics by Server-Sent Events, WebSocket or long polling. An idle client is a parked connection
// (package park): it needs no goroutine and no buffer. Publishers POST, or publish to NATS. The machines find each other's
// clients through NATS: a [Gateway] has an embedded nats-server ([Start]), or uses one that runs elsewhere.
//
// A topic is a NATS subject, such as orders.42, and a subscription may have NATS's wildcards: orders.* or orders.>. Topics
// whose first word is live are live topics: their events go to the clients that are connected, and are not stored. Events of
// all other topics are stored in one JetStream stream before the publisher gets its answer, and have an id,
// <epoch>-<sequence>. A client that comes back with the last id that it has seen, to any machine, gets what it has missed
// and no event twice.
//
// The parts, in the order in which an event passes them:
//
//	internal/transport  a POST, or a message of a WebSocket
//	internal/access     who may publish
//	internal/stream     the stream, which republishes what it has stored
//	internal/hub        the topics that this machine's clients want, and the clients
//	internal/event      an event, and its forms on the wire
//	internal/transport  Server-Sent Events, WebSocket, long polling
//
// Beside these are internal/presence, internal/order, internal/webhook, internal/keys,
// internal/trust and internal/mercure; those above do not know them but for webhooks and presence, which access and
// transport ask. The files here, from the configuration to the end:
//
//	config.go, stream.go, webhooks.go, mercure.go  the fields
//	auth.go, jwks.go  what tokens allow
//	node.go           the embedded nats-server
//	gateway.go        the parts put together, drained, and ended
//	publish.go        the method Publish
//	files.go          the client for browsers, and the description of requests, which are served
//	stats.go, metrics.go  counters
//
// docs/gateway.md says what is promised, and what is not.
package gateway
