package hub

import (
	"context"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A newcomer is a client that reads what it has missed. Events that the feed dispatches in that time
// are kept for it, up to a bound: beyond it, the client reads them from the stream as well.
type newcomer struct {
	next   *newcomer // of the same feed
	events []*event.Event
	bytes  int
	behind bool // events were not kept
}

const (
	MaxKept      = 1000 // events for a newcomer
	maxKeptBytes = 1 << 20
	FewKept      = 64 // are given to it at once
	fewKeptBytes = 32 << 10
)

// keep keeps an event. The caller holds the feed's mu.
func (n *newcomer) keep(e *event.Event) {
	if n.bytes += len(e.Data); n.behind || len(n.events) == MaxKept || n.bytes > maxKeptBytes {
		n.give()
		n.behind = true
		return
	}
	n.events = append(n.events, e)
}

// give returns the events that were kept, and forgets them. The caller holds the feed's mu.
func (n *newcomer) give() []*event.Event {
	events := n.events
	n.events, n.bytes = nil, 0
	return events
}

// expect makes the feed keep the events after floor for a newcomer. The caller holds f.mu.
func (f *Feed) expect() *newcomer {
	n := &newcomer{next: f.Newcomers}
	f.Newcomers = n
	return n
}

// dismiss makes the feed keep no further events for a newcomer. The caller holds f.mu.
func (f *Feed) dismiss(n *newcomer) {
	for at := &f.Newcomers; *at != nil; at = &(*at).next {
		if *at == n {
			*at = n.next
			return
		}
	}
}

// attach makes s a member, from after a position. topic is the feed's place among its topics. What
// was dispatched since is read from the streams and delivered first. The feed goes on in that time.
func (f *Feed) attach(ctx context.Context, s *Subscriber, topic int, after event.Position) error {
	if f.Live() {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		f.add(s, topic, event.Position{})
		if f.Special != nil {
			f.Special.Welcome(s, topic)
		}
		return nil
	}
	after, err := f.Hub.recall(ctx, s, topic, after)
	if err != nil {
		return err
	}
	for joined := false; !joined; {
		f.Mu.Lock()
		floors := f.position()
		if after.Covers(floors) {
			f.add(s, topic, after)
			f.Mu.Unlock()
			return nil
		}
		n := f.expect()
		f.Mu.Unlock()
		if after, joined, err = f.catchUp(ctx, s, topic, after, floors, n); err != nil {
			return err
		}
	}
	return nil
}

// few reports whether so little is kept that it can be given as to a member, without waiting for the
// client. Otherwise a client of a busy topic would never be one. The caller holds the feed's mu.
func (n *newcomer) few() bool {
	return len(n.events) < 2 || len(n.events) <= FewKept && n.bytes <= fewKeptBytes
}

// catchUp delivers to a client what was missed up to a position, from the streams, and then what was
// kept for it. It returns the position up to which the client has the events, and reports whether it is a
// member now: it is not if not all could be kept.
func (f *Feed) catchUp(ctx context.Context, s *Subscriber, topic int, after, through event.Position, n *newcomer) (
	at event.Position, joined bool, err error) {
	at = after
	give := func(e *event.Event) {
		i := f.placeOf(e.Topic)
		if e.At.Seq <= at.In(i) { // a read has it
			return
		}
		at = at.With(i, e.At.Seq)
		if f.wide != nil {
			e = e.For(at)
		}
		if s.Deliver(topic, e) {
			f.Hub.Count.Delivered.Add(1)
		}
	}
	for i := range f.width() {
		if err == nil {
			at, err = f.Hub.replay(ctx, f.shard(i).History, s, topic, at, i, through.In(i))
		}
	}
	for {
		f.Mu.Lock()
		joined = err == nil && !n.behind && n.few()
		kept := n.give()
		if joined {
			for _, e := range kept {
				give(e)
			}
			f.add(s, topic, at)
		}
		if joined || err != nil || n.behind {
			f.dismiss(n)
			f.Mu.Unlock()
			return at, joined, err
		}
		f.Mu.Unlock()
		for _, e := range kept {
			give(e)
			if err = s.To.Flush(ctx); err != nil {
				break
			}
		}
	}
}
