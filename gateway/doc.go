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
//	publish.go   a POST becomes a message of NATS, and waits for JetStream's acknowledgement
//	engine.go    the embedded nats-server, and the stream, which republishes what it has stored
//	hub.go       the topics that this machine's clients want, and one subscription in NATS for each
//	feed.go      one such topic: its clients, and how gaps are noticed and filled
//	history.go   reading the stream
//	event.go     an event, and its forms on the wire, each made once
//	sse.go, poll.go, socket.go   the three ways to subscribe; package sse, park.Suspend and package
//	             websocket have the connections
//	mercure.go, mercurepublish.go, mercuresubscriptions.go  Mercure's protocol, on the same stream
//	presence.go  who is on a topic, on all nodes
//	control.go   orders to disconnect and to unsubscribe clients
//	clients.go   the clients of this node, which control.go and the ends of tokens look through
//	limit.go     the rates of each client
//	webhook.go   a backend is asked what clients may do
//	backup.go    writing the stream to a file, and making it from one
//
// docs/gateway.md says what is promised, and what is not.
package gateway
