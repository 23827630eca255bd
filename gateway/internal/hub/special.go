package hub

import (
	"context"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A Special is what the feed of a topic of the gateway's own does besides: a topic of presence keeps
// a roster, and the members of Mercure's topic choose among its events. The feed is locked while a
// method is called, except for begin.
type Special interface {
	// Begin is called before the first client joins.
	Begin(ctx context.Context) error
	// Take is called for each event of a live topic that comes from NATS. It reports whether the
	// members get it.
	Take(e *event.Event) (news bool)
	// Welcome is called when a client has become a member of a live topic.
	Welcome(s *Subscriber, topic int)
	// Choose is called for each event that the members get. A choice that is nil is all of them. If
	// ok is false, none gets it.
	Choose(e *event.Event) (c Choice, ok bool)
}

// A Choice is an event whose members choose whether they get it.
type Choice interface {
	// Give gives the event to a member that wants it, and reports whether it does.
	Give(to Sink) (taken bool)
}

// An owner makes the feeds special of the gateway's own topics that begin with a prefix.
type owner struct {
	prefix string
	make   func(f *Feed) Special
}

// Own makes the feeds of topics special that begin with a prefix. It must be called before the first
// client comes.
func (h *Hub) Own(prefix string, make func(f *Feed) Special) {
	h.owners = append(h.owners, owner{prefix, make})
}

// specialOf returns what is special about a new feed, or nil.
func (h *Hub) specialOf(f *Feed, filter string) Special {
	for _, o := range h.owners {
		if strings.HasPrefix(filter, o.prefix) {
			return o.make(f)
		}
	}
	return nil
}
