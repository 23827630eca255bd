package hub

import (
	"context"
	"sync/atomic"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A Sink is the connection of a client. None of its methods waits for the peer, except for flush.
type Sink interface {
	// Send gives the client an event, and reports whether it wants it. topic is the event's place
	// among the client's topics.
	Send(topic int, e *event.Event) (taken bool)
	Gap(topic int, reason string, missed event.Span) // the client gets no event of the span of this topic
	Flush(ctx context.Context) error
}

// A Subscriber is what the hub knows of a client.
type Subscriber struct {
	To     Sink
	Topics []subscription
	*Identity
	ID    uint64
	place int // in clientSet.all, and one more; guarded by its mu
}

// An Identity is what the grant of a client says of it. It is nil for a subscriber without an id.
type Identity struct {
	User    string // its subject
	Expires int64  // seconds since 1970, or 0; accessed atomically once the client has joined
}

var Anonymous Identity // shared by the clients that have no user and do not expire

// HasExpired reports whether the client's time has ended at now, in seconds since 1970.
func (i *Identity) HasExpired(now int64) bool {
	at := atomic.LoadInt64(&i.Expires)
	return at != 0 && now >= at
}

// Renew sets when the client's time ends. A client that does not expire stays so.
func (i *Identity) Renew(expires int64) {
	if i != &Anonymous {
		atomic.StoreInt64(&i.Expires, expires)
	}
}

// A branch is the sink of a subscriber that belongs to the connection of another one.
type branch interface{ Root() *Subscriber }

// A subscription is one topic of a client. It is not copied.
type subscription struct {
	*Feed
	slot int32  // the client's place in feed.members and one more, or 0; guarded by feed.mu
	gone bool   // the client was unsubscribed; guarded by feed.mu
	told bool   // the others know that the client has joined; guarded by feed.mu
	At   uint64 // the position of an eventStream, where the topic has one shard; guarded by its mu
}

// Durable reports whether one of the client's topics is durable.
func (s *Subscriber) Durable() bool {
	for i := range s.Topics {
		if !s.Topics[i].Live() {
			return true
		}
	}
	return false
}

// Deliver gives an event of one of the client's topics to the client. If several of them match the
// event, the first one counts; deliver reports whether that was this one, and the client has taken it. A wildcard that matches a
// live topic stands for durable ones alone, and has no such event. No wildcard stands for a topic
// of the gateway's own.
func (s *Subscriber) Deliver(topic int, e *event.Event) bool {
	if s.Topics[topic].Wild && event.IsReserved(e.Topic) {
		return false
	}
	live := topic > 0 && s.Topics[topic].Live()
	for i := range topic {
		if f := s.Topics[i].Feed; f.Live() == live && event.Covers(f.Filter(), e.Topic) {
			return false
		}
	}
	return s.To.Send(topic, e)
}

// MissOf returns the miss of one of a client's topics.
func (s *Subscriber) MissOf(topic int, missed event.Span) event.Miss {
	f := s.Topics[topic].Feed
	if f.Live() {
		return event.Miss{Topic: f.Filter()}
	}
	after, through := missed.Positions(f.Hub.Epoch)
	return event.Miss{Topic: f.Filter(), After: after.String(), Last: through.String()}
}
