package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A Shard is one of the streams that take events, and what this node knows of it.
type Shard struct {
	hub     *Hub
	number  int
	History *stream.History
	kick    chan struct{}                // makes audit run now
	Seen    atomic.Pointer[stream.State] // at the last audit
	kept    atomic.Pointer[retained]     // by the last audit
	asked   time.Time                    // when its leader was asked to move; used by audit

	leaderless atomic.Bool // this node has found no leader of the stream for MaxLeaderless
}

// Leaderless reports whether this node has found no leader of one of the streams for MaxLeaderless.
func (h *Hub) Leaderless() bool {
	return slices.ContainsFunc(h.Shards, func(s *Shard) bool { return s.leaderless.Load() })
}

// A generation is the streams between two changes of the number of shards.
type generation struct {
	base   uint64 // the sequences of its events are above it
	shards []*stream.History
}

// of returns the streams that have events of a filter.
func (g *generation) of(filter string) []*stream.History {
	if len(g.shards) == 1 || event.IsWild(filter) {
		return g.shards
	}
	i := event.ShardOf(filter, len(g.shards))
	return g.shards[i : i+1]
}

// now returns the generation that takes events.
func (h *Hub) now() *generation { return &h.generations[len(h.generations)-1] }

// Histories returns the streams that take events, by shard.
func (h *Hub) Histories() []*stream.History { return h.now().shards }

// generationOf returns the number of the generation from which on a client at a position has to read.
func (h *Hub) generationOf(at event.Position) int {
	least := at.Seq
	for _, seq := range at.Others {
		least = min(least, seq)
	}
	n := len(h.generations) - 1
	for n > 0 && least < h.generations[n].base {
		n--
	}
	return n
}

// Generations returns the streams that have the events of a topic, the newest first.
func (h *Hub) Generations(topic string) (all []*stream.History) {
	for i := range h.generations {
		all = append(all, h.generations[i].of(topic)...)
	}
	slices.Reverse(all)
	return all
}

// Knows reports whether positions of an epoch are known: it is that of the streams, or of one from which
// these were made.
func (h *Hub) Knows(ctx context.Context, epoch string) (bool, error) {
	is := func(e stream.Era) bool { return e.Epoch == epoch }
	if epoch == h.Epoch || slices.ContainsFunc(h.Shards[0].Seen.Load().Eras, is) {
		return true, nil
	}
	for i := range h.generations[:len(h.generations)-1] {
		s, err := h.generations[i].shards[0].State(ctx)
		if err != nil || slices.ContainsFunc(s.Eras, is) {
			return err == nil, err
		}
	}
	return false, nil
}

// recall delivers what a client has missed of the streams that take no event any more. It returns the
// position after which the client goes on with the others. What it delivers is complete before that, so
// the events of each topic come in order.
func (h *Hub) recall(ctx context.Context, s *Subscriber, topic int, at event.Position) (event.Position, error) {
	filter := s.Topics[topic].Filter()
	for n := h.generationOf(at); n < len(h.generations); n++ {
		g := &h.generations[n]
		streams := g.of(filter)
		if at.Width() != len(streams) || at.Seq < g.base { // it has everything before
			at = event.All(h.Epoch, max(at.Seq, g.base), len(streams))
		}
		if n == len(h.generations)-1 {
			break
		}
		for i, from := range streams {
			last, err := from.Last(ctx, filter)
			if err != nil {
				return at, err
			}
			now, err := from.First(ctx)
			if err != nil {
				return at, err
			}
			through := max(last, max(now.First, 1)-1)
			if at, err = h.replay(ctx, from, s, topic, at, i, through); err != nil {
				return at, err
			}
		}
		at = event.Position{Epoch: h.Epoch, Seq: h.generations[n+1].base}
	}
	return at, nil
}

// replay delivers to a client the events of one of the streams of its filter, up to a sequence, and
// returns its position then.
func (h *Hub) replay(ctx context.Context, from *stream.History, s *Subscriber, topic int, at event.Position, i int, through uint64) (
	event.Position, error) {
	if at.In(i) >= through {
		return at, nil
	}
	last, err := from.Replay(ctx, h.Epoch, s.Topics[topic].Filter(), at.In(i), through, func(e *event.Event) error {
		if at.Others != nil {
			at = at.With(i, e.At.Seq)
			now := at
			e.Wide, e.Shard = &now, i
		}
		if s.Deliver(topic, e) {
			h.Count.Delivered.Add(1)
		}
		return s.To.Flush(ctx)
	}, func(lost event.Span) {
		if at.Others != nil {
			lost.Wide = &event.Wide{After: at.With(i, lost.After), Through: at.With(i, lost.Through)}
			at = lost.Wide.Through
		}
		s.To.Gap(topic, event.GapRetention, lost)
	})
	return at.With(i, max(last, at.In(i))), err
}

// LeaderRest is the time between two attempts to move a leader, and the least time for which there has
// been one. It is a variable, so that tests need not wait.
var LeaderRest = 20 * time.Second

// spread moves the leader of the shard to the member whose turn it is, so that each member leads as many
// shards as another one. The node of the leader does that, if the other replica has all events.
func (h *Shard) spread(s *stream.State) {
	if len(h.hub.Shards) < 2 || len(s.Members) < 2 || time.Since(s.Since) < LeaderRest || time.Since(h.asked) < LeaderRest {
		return
	}
	members := slices.Clone(s.Members)
	slices.SortFunc(members, func(a, b stream.Replica) int { return strings.Compare(a.Name, b.Name) })
	next := members[h.number%len(members)]
	here := slices.ContainsFunc(members, func(r stream.Replica) bool {
		return r.Leader && r.Name == h.hub.Conn.ConnectedServerName()
	})
	if next.Leader || !here || !next.Current || next.Offline || next.Lag > 0 {
		return
	}
	h.asked = time.Now()
	if err := h.History.Lead(h.hub.Ctx, next.Name); err != nil {
		h.hub.log.Info("gateway: a leader was not moved", "stream", h.History.Name(), "name", next.Name, "err", err)
	}
}

// shardsOf returns the shards that a feed reads.
func (h *Hub) shardsOf(f *Feed) []*Shard {
	if f.Wild || len(h.Shards) == 1 {
		return h.Shards
	}
	i := h.shardOf(f.Filter())
	return h.Shards[i : i+1]
}

// shardOf returns which shard has the events of a topic.
func (h *Hub) shardOf(topic string) int { return event.ShardOf(topic, len(h.Shards)) }

// newShards returns the shards of the generation that takes events. It fails if their streams are not
// of one store.
func (h *Hub) newShards(ctx context.Context) error {
	for i, history := range h.now().shards {
		one := &Shard{hub: h, number: i, History: history, kick: make(chan struct{}, 1)}
		s, err := one.wait(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			h.Epoch = s.Epoch
		}
		if s.Epoch != h.Epoch {
			return fmt.Errorf("gateway: the streams %s and %s are not of one store: %w",
				h.now().shards[0].Name(), history.Name(), errReplaced)
		}
		if len(s.Members) > 1 {
			h.Patience = MaxBackwards
		}
		one.Seen.Store(&s)
		h.Shards = append(h.Shards, one)
	}
	return nil
}
