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
	began := time.Now()
	s, err := h.History.State(ctx)
	for errors.Is(err, stream.ErrNoLeader) ||
		err == nil && ahead(wants, s) && h.Patience > 0 && time.Since(s.Since) < h.Patience {
		if time.Since(began) >= h.Hold {
			return nil, cmp.Or(err, stream.ErrBehind)
		}
		if stream.Sleep(ctx, 200*time.Millisecond) {
			s, err = h.History.State(ctx)
		} else {
			err = stream.ErrBehind
		}
	}
	if err != nil {
		return nil, err
	}
	var missed event.Gap
	for i := range wants {
		w := &wants[i]
		reason, at := "", event.Position{Epoch: s.Epoch, Seq: s.Last}
		switch {
		case w.Live():
			w.After = event.Position{}
			continue
		case w.Fresh && w.After != event.Position{} && w.After != at:
			reason = event.GapRetention
		case w.After == event.Position{}:
			if w.Last > 0 {
				if at.Seq, err = h.History.Before(ctx, w.Filter, w.Last, s); err != nil {
					return nil, err
				}
				w.After = at
				continue
			}
		case w.After.Epoch == event.Beginning:
			w.After = event.Position{Epoch: s.Epoch, Seq: max(s.First, 1) - 1}
			continue
		case w.After.Epoch == s.Epoch && w.After.Seq <= s.Last:
			h.Count.Resumed.Add(1)
			at = w.After
		default:
			i := slices.IndexFunc(s.Eras, func(e stream.Era) bool { return e.Epoch == w.After.Epoch })
			if i < 0 {
				reason = event.GapEpoch
				break
			}
			h.Count.Resumed.Add(1)
			seen := w.After.Seq
			at.Seq = min(seen, s.Eras[i].Last)
			w.After = at
			for ; i >= 0; i-- {
				e := s.Eras[i]
				if !e.Whole || seen > e.Last { // the stream of that era may have had more events
					after, last := event.Position{Epoch: e.Epoch, Seq: max(seen, e.Last)}, event.Position{Epoch: s.Epoch, Seq: e.Last}
					missed.Add(event.GapEpoch, event.Miss{Topic: w.Filter, After: after.String(), Last: last.String()})
				}
				seen = 0 // of the later eras
			}
		}
		if reason == "" && s.First > at.Seq+1 {
			reason, at.Seq = event.GapRetention, s.First-1
		}
		missed.Add(reason, event.Miss{Topic: w.Filter, After: w.After.String(), Last: at.String()})
		w.After = at
	}
	if missed.Reason == "" {
		return nil, nil
	}
	return &missed, nil
}

// ahead reports whether a client has seen more than the stream has.
func ahead(wants []Want, s stream.State) bool {
	return slices.ContainsFunc(wants, func(w Want) bool {
		return w.After.Epoch == s.Epoch && w.After.Seq > s.Last
	})
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
		err = s.Topics[i].attach(ctx, s, i, wants[i].After.Seq)
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
