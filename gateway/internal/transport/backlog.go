package transport

import (
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
)

// A backlog is the events that were dropped because a client reads too slowly, by topic, and of
// which it was not told. All events of a topic are dropped from the first on, until the client is
// told. It is nil for other clients.
type backlog map[int]event.Span

// add notes that the events of a span were dropped.
func (b *backlog) add(topic int, missed event.Span) {
	if *b == nil {
		*b = make(backlog)
	}
	if before, ok := (*b)[topic]; ok {
		missed = before.Join(missed)
	}
	(*b)[topic] = missed
}

// gap returns what the client is to be told.
func (b backlog) gap(s *hub.Subscriber) event.Gap {
	g := event.Gap{Reason: event.GapSlow}
	for i := range s.Topics {
		if missed, ok := b[i]; ok {
			g.Missed = append(g.Missed, s.MissOf(i, missed))
		}
	}
	return g
}
