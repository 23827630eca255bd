package gateway

import (
	"cmp"
	"slices"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/metrics"
)

// Stats holds counters of a Gateway.
type Stats struct {
	Conns       int    // clients that are connected
	Topics      int    // topics and filters that this node subscribes to
	QueuedBytes int64  // bytes that wait for slow clients
	Published   uint64 // events that were acknowledged, or handed to NATS
	Events      uint64 // events that this node got for its topics
	Delivered   uint64 // events given to clients
	Dropped     uint64 // events that were dropped because of SlowDrop
	// TimedOut counts clients that were closed: Slow because they read too slowly, by WriteTimeout
	// or SlowClose, and Idle because they answered no ping of a WebSocket.
	TimedOut      metrics.TimedOut
	Panics        uint64 // panics of the connections' methods
	Resumed       uint64 // topics that were resumed with an id
	Gaps          uint64 // gaps that an event's predecessor has shown
	Repairs       uint64 // topics that an audit has found behind the stream
	Audits        uint64 // comparisons with the stream
	AuditFailures uint64 // those that failed
	Denied        uint64 // requests without a valid token, or for topics that it does not allow
	Refused       uint64 // requests beyond a limit, or that could not be served now
	Rejected      uint64 // requests that were malformed or too large
	Hooks         uint64 // requests to webhooks
	HookFailures  uint64 // those without a valid answer
	Strange       uint64 // messages of NATS that are not the stream's
	First, Last   uint64 // sequences of the stream, at the last audit; the sums of those of several shards
	Epoch         string
}

// Stats returns the current counters.
func (g *Gateway) Stats() Stats {
	a, c, t := g.access, &g.hub.Count, g.transports
	sockets, events := t.Sockets.Stats(), t.Events.Stats()
	mercure := g.mercure.Stats()
	s := Stats{
		Conns: int(a.Clients.Load()), Topics: g.hub.Size(), QueuedBytes: sockets.QueuedBytes + events.QueuedBytes + mercure.QueuedBytes,
		Published: g.publisher.Published.Load(), Events: c.Events.Load(), Delivered: c.Delivered.Load(),
		Dropped: sockets.Dropped + events.Dropped,
		TimedOut: metrics.TimedOut{Slow: sockets.TimedOut.Slow + events.TimedOut.Slow + mercure.TimedOut.Slow,
			Idle: sockets.TimedOut.Idle},
		Panics: sockets.Panics + events.Panics + mercure.Panics + g.lot.Stats().Panics, Resumed: c.Resumed.Load(), Gaps: c.Gaps.Load(),
		Repairs: c.Repairs.Load(), Audits: c.Audits.Load(), AuditFailures: c.AuditFailures.Load(), Denied: a.Denied.Load(),
		Refused: a.Refused.Load(), Rejected: a.Rejected.Load(), Strange: c.Strange.Load(),
		Epoch: g.hub.Epoch,
	}
	for _, shard := range g.hub.Shards {
		seen := shard.Seen.Load()
		s.First, s.Last = s.First+seen.First, s.Last+seen.Last
	}
	s.Hooks, s.HookFailures = a.Hooks.Calls()
	return s
}

// A SlowClient is a client of this node for which bytes wait, because it reads too slowly.
type SlowClient struct {
	Client    string // the id of the connection
	User      string // the Subject of its Grant
	Transport string // websocket or sse
	Queued    int    // bytes
}

// Slowest returns the clients for which the most bytes wait, at most n. Those of Mercure's protocol are
// not among them.
func (g *Gateway) Slowest(n int) []SlowClient {
	slow := g.transports.Slowest(n)
	all := make([]SlowClient, len(slow))
	for i, s := range slow {
		all[i] = SlowClient(s)
	}
	return all
}

// A Topic is a topic, or a filter with wildcards, that clients of this node have subscribed to.
type Topic struct {
	Filter  string
	Clients int
	Last    uint64 // sequence of the last event that was delivered; 0 for live topics
	Behind  uint64 // at most so many events are stored and not delivered yet
}

// Topics returns the topics with the most clients, at most n.
func (g *Gateway) Topics(n int) []Topic {
	topics := make([]Topic, 0, n)
	for _, f := range g.hub.All() {
		if event.IsReserved(f.Filter()) {
			continue
		}
		clients, floor, target := f.State()
		topics = append(topics, Topic{f.Filter(), clients, floor, target - floor})
	}
	slices.SortFunc(topics, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Filter, b.Filter))
	})
	return topics[:min(n, len(topics))]
}
