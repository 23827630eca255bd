package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// Acquire returns the feed of a filter, and counts a reference to it. It makes the feed if there is
// none. NATS is asked without h.mu, which the events of all other topics need.
func (h *Hub) Acquire(ctx context.Context, filter string) (*Feed, error) {
	subject := SubjectOf(filter)
	h.Mu.Lock()
	if h.closed {
		h.Mu.Unlock()
		return nil, errHubClosed
	}
	s := h.Starting[subject]
	if s == nil {
		if f := h.feeds[subject]; f != nil {
			f.refs++
			h.Mu.Unlock()
			return f, nil
		}
		s = &Start{Done: make(chan struct{})}
		h.Starting[subject] = s
		h.Work.Go(func() { h.make(s, filter) })
	}
	s.Refs++
	h.Mu.Unlock()
	select {
	case <-s.Done:
		return s.feed, s.failed
	case <-ctx.Done():
		h.abandon(s)
		return nil, context.Cause(ctx)
	}
}

// A Start is a feed that is being made, and the clients that wait for it. The feed is among the
// feeds of the hub as soon as it has its subscription, so that it gets messages.
type Start struct {
	Refs   int32         // clients that wait; guarded by hub.mu
	Done   chan struct{} // closed when feed or failed is set
	feed   *Feed
	failed error
}

// make makes a feed.
func (h *Hub) make(s *Start, filter string) {
	f, err := h.AddFeed(filter)
	if err == nil {
		err = h.begin(f)
	}
	h.Started(s, filter, f, err)
}

// Started notes the result of make. f is nil if there was no subscription.
func (h *Hub) Started(s *Start, filter string, f *Feed, err error) {
	h.Mu.Lock()
	delete(h.Starting, SubjectOf(filter)) // those who come now try again, if it has failed
	if f != nil {
		f.refs = s.Refs
	}
	unused := f != nil && (err != nil || f.refs == 0)
	if unused {
		h.forget(f)
	}
	if s.failed = err; err == nil {
		s.feed = f
	}
	close(s.Done)
	h.Mu.Unlock()
	if unused {
		f.close()
	}
}

// abandon takes a client off that does not wait any more.
func (h *Hub) abandon(s *Start) {
	h.Mu.Lock()
	select {
	case <-s.Done:
		h.Mu.Unlock()
		if s.failed == nil {
			h.Release(s.feed)
		}
	default:
		s.Refs--
		h.Mu.Unlock()
	}
}

// forget removes a feed from those of the hub. The caller holds h.mu, and calls close.
func (h *Hub) forget(f *Feed) {
	delete(h.feeds, f.Subject)
	if event.IsReserved(f.Filter()) {
		h.hidden--
	}
}

// close ends the subscription of a feed that was forgotten. Messages that are under way do not find
// it, and those of a feed that is made in its place have another subscription.
func (f *Feed) close() {
	f.Sub.Unsubscribe()
	f.Mu.Lock()
	f.closed = true
	f.Mu.Unlock()
}

// AddFeed subscribes for a new feed. begin and started must follow.
//
// A message that comes before the feed is among those of the hub is lost. If the topic is durable,
// the event was stored before begin asks where the feed begins. If it is live, no client waits for
// it.
func (h *Hub) AddFeed(filter string) (*Feed, error) {
	subject := SubjectOf(filter)
	f := &Feed{Hub: h, Subject: subject, Wild: event.IsWild(filter)}
	if f.Wild && len(h.Shards) > 1 && !event.IsLive(filter) {
		f.wide = new(wide)
		f.wide.others = make([]struct {
			lane
			reading bool
		}, len(h.Shards)-1)
	}
	var err error
	if f.Sub, err = h.Conn.ChanSubscribe(subject, h.Inbox(subject)); err != nil {
		return nil, fmt.Errorf("gateway: subscribe: %w", err)
	}
	if event.IsReserved(filter) {
		f.Special = h.specialOf(f, filter)
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.feeds[subject] = f
	if event.IsReserved(filter) {
		h.hidden++
	}
	return f, nil
}

// begin finds out where a new feed begins. The subscription has reached this node's server, so what
// is stored after the question is republished to the feed, or, where the subscription has not
// reached the leader's server yet, found by an audit.
func (h *Hub) begin(f *Feed) error {
	if f.Special != nil {
		if err := f.Special.Begin(h.Ctx); err != nil {
			return err
		}
	}
	if f.Live() {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.Ctx, stream.RequestTimeout)
	defer cancel()
	if err := h.Conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("gateway: subscribe: %w", err)
	}
	shards := h.shardsOf(f)
	floors := make([]uint64, len(shards))
	for i, shard := range shards {
		floor, err := shard.History.Last(h.Ctx, f.Filter())
		if err != nil {
			return err
		}
		now, err := shard.History.First(h.Ctx)
		if err != nil {
			return err
		}
		floors[i] = max(floor, max(now.First, 1)-1)
	}
	f.Begin(floors...)
	time.AfterFunc(firstAudit, func() {
		for _, shard := range shards {
			shard.auditNow()
		}
	})
	return nil
}

// Release drops a reference, and unsubscribes at the last one.
func (h *Hub) Release(f *Feed) {
	h.Mu.Lock()
	f.refs--
	unused := f.refs == 0
	if unused {
		h.forget(f)
	}
	h.Mu.Unlock()
	if unused {
		f.close()
	}
}
