package event

// A Span is the events with sequences above after, up to and including through. Of a filter that reads several shards it is
// of one of them, and Wide has the positions of the client before and after it.
type Span struct {
	After, Through uint64
	Wide           *Wide
}

// A Wide is the events between two positions in several shards.
type Wide struct{ After, Through Position }

// Alone is the span of one event.
func (e *Event) Alone() Span {
	s := Span{After: max(e.At.Seq, 1) - 1, Through: e.At.Seq}
	if e.Wide != nil {
		s.Wide = &Wide{e.Wide.With(e.Shard, s.After), *e.Wide}
	}
	return s
}

// Join returns the events of a span and of one that follows, of the same filter.
func (s Span) Join(next Span) Span {
	next.After = s.After
	if s.Wide != nil && next.Wide != nil {
		next.Wide = &Wide{s.Wide.After, next.Wide.Through}
	}
	return next
}

// Positions returns the positions before and after the span.
func (s Span) Positions(epoch string) (after, through Position) {
	if s.Wide != nil {
		return s.Wide.After, s.Wide.Through
	}
	return Position{Epoch: epoch, Seq: s.After}, Position{Epoch: epoch, Seq: s.Through}
}

// The reasons of gaps, as clients get them.
const (
	GapRetention = "retention" // the stream no longer has what the client asked for
	GapEpoch     = "epoch"     // the id is of another stream
	GapSlow      = "slow"      // events were dropped because the client reads too slowly
)

// A Gap is what a client is told of events that it does not get.
type Gap struct {
	Reason string `json:"reason"`
	Missed []Miss `json:"missed"`
}

// A Miss is the part of a gap that is of one topic: its events with ids after After, up to and
// including Last. Both are empty for live topics.
type Miss struct {
	Topic string `json:"topic"` // as the client has asked for it
	After string `json:"after,omitempty"`
	Last  string `json:"last,omitempty"`
}

// Add adds the miss of a topic, unless there is no reason. The client's id being of another stream
// is the reason that counts.
func (g *Gap) Add(reason string, m Miss) {
	if reason == "" {
		return
	}
	if g.Reason != GapEpoch {
		g.Reason = reason
	}
	g.Missed = append(g.Missed, m)
}
