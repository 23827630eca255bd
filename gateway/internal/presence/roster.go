package presence

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
)

// A roster has the members of a topic. It is guarded by the lock of its feed.
type roster struct {
	p       *Presence
	feed    *hub.Feed           // of $presence.T
	of      string              // T
	members map[string]attendee // by Client
	bytes   int
	// touched has those who have joined or left since the question under way was asked. The answers
	// may be older. It is nil if there is no question.
	touched map[string]bool
}

// add adds a member. It reports whether it was not there, and there was room.
func (r *roster) add(m attendee) bool {
	if _, known := r.members[m.Client]; known || r.full(m) {
		return false
	}
	r.members[m.Client] = m
	r.bytes += m.size()
	return true
}

func (r *roster) full(m attendee) bool {
	return len(r.members) >= maxMembers || r.bytes+m.size() > maxMemberBytes
}

// remove removes a member. It reports whether it was there.
func (r *roster) remove(client string) bool {
	m, known := r.members[client]
	if known {
		r.bytes -= m.size()
		delete(r.members, client)
	}
	return known
}

// attendance returns the members, in the order of their ids.
func (r *roster) attendance() attendance {
	a := attendance{Members: slices.AppendSeq(make([]attendee, 0, len(r.members)),
		maps.Values(r.members))}
	slices.SortFunc(a.Members, func(x, y attendee) int { return strings.Compare(x.Client, y.Client) })
	a.Full = len(r.members) >= maxMembers || r.bytes > maxMemberBytes-access.MaxSubject
	return a
}

// newRoster makes the roster of a topic, whose feed is that of $presence.T.
func (p *Presence) newRoster(f *hub.Feed) hub.Special {
	of, _ := event.PresenceOf(f.Filter())
	return &roster{p: p, feed: f, of: of, members: make(map[string]attendee)}
}

// Take notes what an event of presence says. It reports whether that is news. The feed is locked.
func (r *roster) Take(e *event.Event) bool {
	var m movement
	if json.Unmarshal(e.Data, &m) != nil || (m.Join == nil) == (m.Leave == nil) {
		r.p.hub.Count.Strange.Add(1)
		return false
	}
	switch {
	case m.Join != nil:
		r.touch(m.Join.Client)
		return r.add(*m.Join)
	default:
		r.touch(m.Leave.Client)
		return r.remove(m.Leave.Client)
	}
}

func (r *roster) touch(client string) {
	if r.touched != nil {
		r.touched[client] = true
	}
}

// Begin asks all nodes for the members, and tells the feed's subscribers what has changed.
func (r *roster) Begin(ctx context.Context) error {
	f, p := r.feed, r.p
	f.Lock()
	r.touched = make(map[string]bool)
	f.Unlock()
	answers, err := p.ask(ctx, r.of)
	living := p.living()
	f.Lock()
	defer f.Unlock()
	touched := r.touched
	r.touched = nil
	if err != nil {
		return err
	}
	said := make(map[string]bool)
	for _, a := range answers {
		for _, m := range a.Members {
			said[m.Client] = true
			if !touched[m.Client] && r.add(m) {
				f.Dispatch(&event.Event{Topic: f.Filter(), Data: event.Encode(movement{Join: &m})})
			}
		}
	}
	for client, m := range r.members {
		a, answered := answers[m.node()]
		gone := answered && !a.Full && !said[client] || !answered && !living[m.node()]
		if gone && !touched[client] {
			r.remove(client)
			f.Dispatch(&event.Event{Topic: f.Filter(), Data: event.Encode(movement{Leave: &m})})
		}
	}
	return nil
}

// Welcome tells a new subscriber who is there. The feed is locked.
func (r *roster) Welcome(s *hub.Subscriber, topic int) {
	s.Deliver(topic, &event.Event{Topic: r.feed.Filter(), Data: event.Encode(r.attendance())})
}

// Choose gives all events to all subscribers.
func (r *roster) Choose(*event.Event) (hub.Choice, bool) { return nil, true }
