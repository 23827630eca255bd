// Package hub gives the events that this node gets to its clients. A message of NATS passes its files in
// this order:
//
//	hub.go         the feeds of this node, one for each filter that a client wants
//	shard.go       the streams that the feeds are of
//	feed.go        one feed: its members, and how gaps are noticed and filled
//	special.go     what a feed of a topic of the gateway's own does besides
//	subscriber.go  a client, and the interface of its connection
//
// A client passes these:
//
//	join.go        where it begins, how it joins, and how it leaves
//	start.go       the first client of a filter makes the feed
//	newcomer.go    what it has missed is read before it is a member
//	clients.go     the clients by id
//
// audit.go finds events that were lost and have no successor.
//
// The hub does not know presence, orders, webhooks or Mercure: [Hub.Own] and the hooks of a [Hub] are all
// that these have. No method asks NATS with a lock held, and nothing waits for a client but
// [Sink.Flush], which is called without a lock.
package hub
