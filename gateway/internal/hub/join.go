package hub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A Want is a filter, and the position after which the client wants its events. Without a position
// it begins with the last events that are stored, as many as last says. A fresh one begins with what
// comes, and the client is told of a gap after the position that it has.
type Want struct {
	Filter string
	After  event.Position
	Last   int
	Fresh  bool
}

// Live reports whether the filter is of live topics.
func (w Want) Live() bool { return event.IsLive(w.Filter) }

// Durable reports whether one of the filters is of durable topics.
func Durable(wants []Want) bool {
	return slices.ContainsFunc(wants, func(w Want) bool { return !w.Live() })
}

// Locate fills in positions for a client that has none: it begins with what is stored from now on.
// It returns the gap that the client must be told of, or nil.
func (h *Hub) Locate(ctx context.Context, wants []Want) (*event.Gap, error) {
	if !Durable(wants) {
		return nil, nil
	}
	l := locator{hub: h, ctx: ctx, began: time.Now()}
	for i := range wants {
		if err := l.locate(&wants[i]); err != nil {
			return nil, err
		}
	}
	if l.missed.Reason == "" {
		return nil, nil
	}
	return &l.missed, nil
}

// A locator finds out where the topics of a client begin.
type locator struct {
	hub    *Hub
	ctx    context.Context
	began  time.Time
	known  []knownState // of streams that were asked
	missed event.Gap
}

type knownState struct {
	of    *stream.History
	state stream.State
}

// state returns the state of a stream. If a client has seen more than that has, state waits for a leader
// that may have to catch up with itself. It also waits for a leader, if there is none.
func (l *locator) state(of *stream.History, seen event.Position, i int) (stream.State, error) {
	h := l.hub
	var s stream.State
	var err error
	if n := slices.IndexFunc(l.known, func(k knownState) bool { return k.of == of }); n >= 0 {
		s = l.known[n].state
	} else if s, err = of.State(l.ctx); err == nil {
		l.known = append(l.known, knownState{of, s})
	}
	for errors.Is(err, stream.ErrNoLeader) || err == nil && seen.Epoch == s.Epoch && i < seen.Width() && seen.In(i) > s.Last &&
		h.Patience > 0 && time.Since(s.Since) < h.Patience {
		if time.Since(l.began) >= h.Hold {
			return s, cmp.Or(err, stream.ErrBehind)
		}
		if stream.Sleep(l.ctx, 200*time.Millisecond) {
			s, err = of.State(l.ctx)
		} else {
			err = stream.ErrBehind
		}
	}
	return s, err
}

// locate finds out where one topic begins.
func (l *locator) locate(w *Want) (err error) {
	switch {
	case w.Live():
		w.After = event.Position{}
		return nil
	case w.Fresh && !w.After.IsZero(): // nothing of the past can be had
		at, err := l.end(w.Filter)
		if err != nil {
			return err
		}
		if at.String() != w.After.String() {
			l.missed.Add(event.GapRetention, event.Miss{Topic: w.Filter, After: w.After.String(), Last: at.String()})
		}
		w.After = at
		return nil
	case w.After.IsZero() && w.Last > 0:
		w.After, err = l.before(w.Filter, w.Last)
		return err
	case w.After.IsZero():
		w.After, err = l.end(w.Filter)
		return err
	case w.After.Epoch == event.Beginning:
		w.After, err = l.first(w.Filter)
		return err
	}
	generation, at, err := l.resolve(w.Filter, w.After)
	if err != nil {
		return err
	}
	if generation < 0 {
		if at, err = l.end(w.Filter); err != nil {
			return err
		}
		l.missed.Add(event.GapEpoch, event.Miss{Topic: w.Filter, After: w.After.String(), Last: at.String()})
		w.After = at
		return nil
	}
	l.hub.Count.Resumed.Add(1)
	w.After = at
	reason := ""
	for i, of := range l.hub.generations[generation].of(w.Filter) {
		s, err := l.state(of, event.Position{}, 0)
		if err != nil {
			return err
		}
		if s.First > at.In(i)+1 {
			reason, at = event.GapRetention, at.With(i, s.First-1)
		}
	}
	l.missed.Add(reason, event.Miss{Topic: w.Filter, After: w.After.String(), Last: at.String()})
	w.After = at
	return nil
}

// end returns the position after all events.
func (l *locator) end(filter string) (at event.Position, err error) {
	streams := l.hub.now().of(filter)
	at = event.All("", 0, len(streams))
	for i, of := range streams {
		s, err := l.state(of, event.Position{}, 0)
		if err != nil {
			return at, err
		}
		at = at.With(i, s.Last)
		at.Epoch = s.Epoch
	}
	return at, nil
}

// first returns the position before all events that are stored.
func (l *locator) first(filter string) (at event.Position, err error) {
	for n := range l.hub.generations {
		g := &l.hub.generations[n]
		streams := g.of(filter)
		at = event.All("", 0, len(streams))
		empty := true
		for i, of := range streams {
			s, err := l.state(of, event.Position{}, 0)
			if err != nil {
				return at, err
			}
			empty = empty && s.First > s.Last
			at = at.With(i, max(s.First, 1)-1)
			at.Epoch = s.Epoch
		}
		if !empty {
			break
		}
	}
	return at, nil
}

// resolve returns the generation and the position of an event that a client has seen. An era of another
// epoch counts as far as it has the same events; what the client misses of the others is noted. The
// generation is -1 if the position is not known.
func (l *locator) resolve(filter string, seen event.Position) (generation int, at event.Position, err error) {
	for n := len(l.hub.generations) - 1; n >= 0; n-- {
		g := &l.hub.generations[n]
		streams := g.of(filter)
		p := seen
		switch {
		case p.Width() == len(streams):
		case p.Width() == 1 && p.Seq == g.base:
			p = event.All(p.Epoch, p.Seq, len(streams)) // before the first event of all shards
		default:
			continue
		}
		at, missed, ok, err := l.translate(streams, filter, p, n == len(l.hub.generations)-1)
		if err != nil {
			return -1, at, err
		}
		if ok && (n == 0 || l.hub.generationOf(at) >= n) {
			for _, m := range missed {
				l.missed.Add(event.GapEpoch, m)
			}
			return n, at, nil
		}
	}
	return -1, at, nil
}

// translate returns a position in the present epoch, and what the client misses of earlier ones. ok
// reports whether all streams know the position. wait makes it wait for streams that are behind.
func (l *locator) translate(streams []*stream.History, filter string, p event.Position, wait bool) (
	at event.Position, missed []event.Miss, ok bool, err error) {
	at = p
	behind := event.Position{}
	if wait {
		behind = p
	}
	var eras []stream.Era // of the first stream; those of the others have the same epochs
	lasts := make([]event.Position, 0, 1)
	i := -1
	for shard, of := range streams {
		s, err := l.state(of, behind, shard)
		if err != nil {
			return at, nil, false, err
		}
		at.Epoch = s.Epoch
		if p.Epoch == s.Epoch {
			if p.In(shard) > s.Last {
				return at, nil, false, nil
			}
			continue
		}
		if shard == 0 {
			eras = s.Eras
			i = slices.IndexFunc(eras, func(e stream.Era) bool { return e.Epoch == p.Epoch })
			for range i + 1 {
				lasts = append(lasts, p)
			}
		}
		if i < 0 || i >= len(s.Eras) || s.Eras[i].Epoch != p.Epoch {
			return at, nil, false, nil
		}
		for k := range i + 1 {
			lasts[k] = lasts[k].With(shard, s.Eras[k].Last)
		}
		at = at.With(shard, min(p.In(shard), s.Eras[i].Last))
	}
	seen := p
	for ; i >= 0; i-- {
		last := lasts[i]
		if !eras[i].Whole || !last.Covers(seen) { // the streams of that era may have had more events
			after := seen.Max(last)
			after.Epoch, last.Epoch = eras[i].Epoch, at.Epoch
			missed = append(missed, event.Miss{Topic: filter, After: after.String(), Last: last.String()})
		}
		seen = event.All("", 0, len(streams)) // of the later eras
	}
	return at, missed, true, nil
}

// before returns the position after which a filter has the last n events, or all if these are fewer. Of
// several shards those count that were stored last.
func (l *locator) before(filter string, n int) (at event.Position, err error) {
	for g := len(l.hub.generations) - 1; g >= 0; g-- {
		from, found, err := l.beforeIn(l.hub.generations[g].of(filter), filter, n)
		if err != nil {
			return at, err
		}
		if found > 0 || at.IsZero() {
			at = from
		}
		if n -= found; n <= 0 {
			break
		}
	}
	return at, nil
}

// beforeIn is before of one generation. It also returns the number of events.
func (l *locator) beforeIn(streams []*stream.History, filter string, n int) (at event.Position, found int, err error) {
	at = event.All("", 0, len(streams))
	type candidate struct {
		stream.Stamp
		shard int
	}
	var all []candidate
	for i, of := range streams {
		s, err := l.state(of, event.Position{}, 0)
		if err != nil {
			return at, 0, err
		}
		seq, count, err := of.Before(l.ctx, filter, n, s)
		if err != nil {
			return at, 0, err
		}
		at = at.With(i, seq)
		at.Epoch = s.Epoch
		if found += count; len(streams) == 1 {
			return at, found, nil
		}
		stamps, err := of.Stamps(l.ctx, filter, seq, n)
		if err != nil {
			return at, 0, err
		}
		for _, stamp := range stamps {
			all = append(all, candidate{stamp, i})
		}
		at = at.With(i, s.Last)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.shard, b.shard), cmp.Compare(b.Seq, a.Seq))
	})
	all = all[:min(n, len(all))]
	for _, c := range all {
		at = at.With(c.shard, min(at.In(c.shard), c.Seq-1))
	}
	return at, len(all), nil
}

// Join makes s a client of the filters. What it has missed is delivered first. If it fails, leave
// must be called all the same.
func (h *Hub) Join(ctx context.Context, s *Subscriber, wants []Want) error {
	h.Clients.add(s)
	topics := make([]subscription, 0, len(wants))
	var err error
	for _, w := range wants {
		var f *Feed
		if f, err = h.Acquire(ctx, w.Filter); err != nil {
			break
		}
		topics = append(topics, subscription{Feed: f, At: w.After.Seq})
	}
	h.Clients.settle(s, topics) // all before the first event is delivered
	for i := range s.Topics {
		if err != nil {
			return err
		}
		err = s.Topics[i].attach(ctx, s, i, wants[i].After)
	}
	if err != nil {
		return err
	}
	for i := range s.Topics {
		h.changed(s, i)
	}
	if h.OnJoin != nil {
		h.OnJoin(s) // the client knows its id already
	}
	return nil
}

// Unsubscribe ends a client's subscription to a topic, also one that it joins now. It reports whether
// this is the first time.
func (h *Hub) Unsubscribe(s *Subscriber, topic int) (first bool) {
	f := s.Topics[topic].Feed
	if first = f.expel(s, topic); first {
		h.changed(s, topic)
		h.Release(f)
	}
	return first
}

// Leave undoes join.
func (h *Hub) Leave(s *Subscriber) {
	h.Clients.remove(s)
	for i := range s.Topics {
		h.Unsubscribe(s, i)
	}
}

// Wants reports whether a client that has joined was not unsubscribed from one of its topics.
func (h *Hub) Wants(s *Subscriber, topic int) bool {
	f := s.Topics[topic].Feed
	f.Lock()
	defer f.Unlock()
	return !s.Topics[topic].gone
}

// changed says that a client may have joined or left one of its topics.
func (h *Hub) changed(s *Subscriber, topic int) {
	if h.OnChange != nil {
		h.OnChange(s, topic)
	}
}
