package gateway

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A feed is one filter that clients of this node want, and these clients. It has one subscription
// in NATS. The events of a durable feed are dispatched in the order of the stream, without gap.
//
// All events of the filter up to the sequence floor were dispatched, or the members were told that
// they are lost. target is the highest sequence of the filter that is known to be stored. If it is
// above floor, a goroutine reads the stream from the one to the other. In the usual case no stream
// is read: the republished event names its predecessor on the same topic, and if that is not above
// floor, nothing was missed and the event is dispatched at once. With a wildcard that does not
// follow, because the event that was missed may be of another topic. So a republished event of such
// a feed only raises target. Nor does it follow for an event without a predecessor: the stream may
// have had one, and lost it to the retention.
//
// What is republished before floor is known also raises target alone.
//
// Republished events may be lost: when a route breaks, when the leader dies after storing and
// before republishing, when this node is too slow. The successor of a lost event shows that, and
// hub.audit finds those without one.
type feed struct {
	hub    *hub
	sub    *nats.Subscription
	roster *roster // of a topic of presence, otherwise nil
	refs   int32   // clients that join or have joined; guarded by hub.mu
	wild   bool

	// What follows is guarded by mu, which is held while an event is given to all members.
	begun     bool // floor is known
	reading   bool
	closed    bool
	mu        sync.Mutex
	newcomers *newcomer // who read what they have missed
	members   []membership
	floor     uint64
	target    uint64
	checked   atomic.Uint64 // like floor, by the last audit; it may be the higher one
}

// A membership is a client of a feed. Clients are in a slice, in the order in which they have come:
// in the order of a map, which is random, each write to one of 5,000 sockets costs about a sixth
// more.
type membership struct {
	client *subscriber
	topic  int    // the feed's place among the client's topics
	after  uint64 // the client has what is up to this sequence
}

// filter returns the filter, a part of the subject that the subscription has.
func (f *feed) filter() string { return f.sub.Subject[len(livePrefix):] }

func (f *feed) live() bool { return isLive(f.filter()) }

// counted reports whether the members are those of the topic's presence.
func (f *feed) counted() bool {
	return !f.wild && !isReserved(f.filter()) && f.hub.presence.has(f.filter())
}

// subjectOf returns the subject of NATS that the feed of a filter listens to.
func subjectOf(filter string) string {
	if isLive(filter) {
		return livePrefix + filter
	}
	return republishedPrefix + filter
}

// receive handles a message of the feed's subscription.
func (f *feed) receive(m *nats.Msg) {
	if f.live() {
		if len(m.Data) > f.hub.largest {
			f.hub.count.strange.Add(1) // published on NATS, past this gateway's limit
			return
		}
		e := &event{topic: strings.TrimPrefix(m.Subject, livePrefix), data: m.Data}
		f.mu.Lock()
		if f.roster == nil || f.move(e.data) {
			f.dispatch(e)
		}
		f.mu.Unlock()
		return
	}
	topic, ok := strings.CutPrefix(m.Subject, republishedPrefix)
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	previous, err2 := strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	if !ok || err != nil || err2 != nil {
		f.hub.count.strange.Add(1) // published by a program that must not publish here
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq <= f.target {
		return // read already, or about to be
	}
	f.target = seq
	switch {
	case !f.begun, f.reading: // what will be read has it
	case !f.wild && previous <= f.floor &&
		(previous > 0 || f.hub.keptSince(f.settled(), seq, m.Header.Get("Nats-Time-Stamp"))):
		f.dispatch(&event{topic: topic, data: m.Data, at: position{f.hub.epoch, seq}})
		f.floor = seq
	default:
		if !f.wild && previous > 0 {
			f.hub.count.gaps.Add(1)
		}
		f.startReading()
	}
}

// reach makes the feed read the stream up to an event that is stored, unless it has been
// dispatched.
func (f *feed) reach(seq uint64) (behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq <= f.target {
		return false
	}
	f.target = seq
	f.startReading()
	return true
}

// settled returns the sequence up to which there is nothing to dispatch. The caller holds f.mu.
func (f *feed) settled() uint64 { return max(f.floor, f.checked.Load()) }

// begin sets floor to the sequence of the filter's last event, or to what has left the stream where
// that is more.
func (f *feed) begin(floor uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.floor = true, floor
	if f.target > floor { // events were republished before the answer came
		f.startReading()
	}
	f.target = max(f.target, floor)
}

// startReading starts the goroutine that reads the stream. The caller holds f.mu.
func (f *feed) startReading() {
	if f.begun && !f.reading && !f.closed {
		f.reading = true
		f.hub.work.Go(f.read)
	}
}

// read reads the stream until floor has reached target.
func (f *feed) read() {
	h := f.hub
	for {
		f.mu.Lock()
		if f.closed || f.floor >= f.target {
			f.reading = false
			f.mu.Unlock()
			return
		}
		after, through := min(f.settled(), f.target-1), f.target
		f.mu.Unlock()
		_, err := h.history.replay(h.ctx, h.epoch, f.filter(), after, through, func(e *event) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.dispatch(e)
			f.floor = e.at.seq
			f.target = max(f.target, e.at.seq)
			return nil
		}, func(missed span) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lose(missed)
		})
		if err != nil {
			sleep(h.ctx, 100*time.Millisecond)
		}
		if h.ctx.Err() != nil {
			return
		}
	}
}

// dispatch gives an event to all members. No member makes it wait. The caller holds f.mu.
func (f *feed) dispatch(e *event) {
	f.hub.count.events.Add(1)
	for n := f.newcomers; n != nil; n = n.next {
		n.keep(e)
	}
	if f.filter() == mercureTopic { // the members choose among the events
		f.dispatchUpdate(e)
		return
	}
	delivered := uint64(0)
	for _, m := range f.members {
		if (e.at.seq == 0 || e.at.seq > m.after) && m.client.deliver(m.topic, e) {
			delivered++
		}
	}
	f.hub.count.delivered.Add(delivered)
}

// lose tells the members that they do not get the events of a span, except those members that have
// them. The caller holds f.mu.
func (f *feed) lose(missed span) {
	for _, m := range f.members {
		if missed.through > m.after {
			m.client.to.gap(m.topic, gapRetention, span{max(missed.after, m.after), missed.through})
		}
	}
	for n := f.newcomers; n != nil; n = n.next { // a read finds the gap
		n.give()
		n.behind = true
	}
	f.floor = max(f.floor, missed.through)
	f.target = max(f.target, f.floor)
}

// pass notes the result of an audit: the filter has no event above target up to horizon, and what
// is below first has left the stream.
func (f *feed) pass(horizon, first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun || f.reading || f.floor < f.target {
		return // what is read is compared, too
	}
	if after := f.settled(); first > after+1 {
		f.lose(span{after, first - 1})
	}
	f.checked.Store(max(f.checked.Load(), horizon))
}

// A newcomer is a client that reads what it has missed. Events that the feed dispatches in that time
// are kept for it, up to a bound: beyond it, the client reads them from the stream as well.
type newcomer struct {
	next   *newcomer // of the same feed
	events []*event
	bytes  int
	behind bool // events were not kept
}

const (
	maxKept      = 1000 // events for a newcomer
	maxKeptBytes = 1 << 20
	fewKept      = 64 // are given to it at once
	fewKeptBytes = 32 << 10
)

// keep keeps an event. The caller holds the feed's mu.
func (n *newcomer) keep(e *event) {
	if n.bytes += len(e.data); n.behind || len(n.events) == maxKept || n.bytes > maxKeptBytes {
		n.give()
		n.behind = true
		return
	}
	n.events = append(n.events, e)
}

// give returns the events that were kept, and forgets them. The caller holds the feed's mu.
func (n *newcomer) give() []*event {
	events := n.events
	n.events, n.bytes = nil, 0
	return events
}

// expect makes the feed keep the events after floor for a newcomer. The caller holds f.mu.
func (f *feed) expect() *newcomer {
	n := &newcomer{next: f.newcomers}
	f.newcomers = n
	return n
}

// dismiss makes the feed keep no further events for a newcomer. The caller holds f.mu.
func (f *feed) dismiss(n *newcomer) {
	for at := &f.newcomers; *at != nil; at = &(*at).next {
		if *at == n {
			*at = n.next
			return
		}
	}
}

// attach makes s a member, from after a sequence. topic is the feed's place among its topics. What
// was dispatched since is read from the stream and delivered first. The feed goes on in that time.
func (f *feed) attach(ctx context.Context, s *subscriber, topic int, after uint64) error {
	if f.live() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.add(s, topic, 0)
		if f.roster != nil {
			f.welcome(s, topic)
		}
		return nil
	}
	for joined := false; !joined; {
		f.mu.Lock()
		floor := f.floor
		if floor <= after {
			f.add(s, topic, after)
			f.mu.Unlock()
			return nil
		}
		n := f.expect()
		f.mu.Unlock()
		var err error
		if after, joined, err = f.catchUp(ctx, s, topic, span{after, floor}, n); err != nil {
			return err
		}
	}
	return nil
}

// few reports whether so little is kept that it can be given as to a member, without waiting for the
// client. Otherwise a client of a busy topic would never be one. The caller holds the feed's mu.
func (n *newcomer) few() bool {
	return len(n.events) < 2 || len(n.events) <= fewKept && n.bytes <= fewKeptBytes
}

// catchUp delivers to a client what was missed, from the stream, and then what was kept for it. It
// returns the sequence up to which the client has the events, and reports whether it is a member
// now: it is not if not all could be kept.
func (f *feed) catchUp(ctx context.Context, s *subscriber, topic int, missed span, n *newcomer) (
	after uint64, joined bool, err error) {
	h := f.hub
	give := func(e *event) {
		if m, ok := s.to.(*mercureStream); ok && m.replay(e) || !ok && s.deliver(topic, e) {
			h.count.delivered.Add(1)
		}
	}
	after, err = h.history.replay(ctx, h.epoch, f.filter(), missed.after, missed.through,
		func(e *event) error {
			give(e)
			return s.to.flush(ctx)
		}, func(lost span) { s.to.gap(topic, gapRetention, lost) })
	for {
		f.mu.Lock()
		joined = err == nil && !n.behind && n.few()
		kept := n.give()
		if joined {
			for _, e := range kept {
				if e.at.seq > after {
					give(e)
					after = e.at.seq
				}
			}
			f.add(s, topic, after)
		}
		if joined || err != nil || n.behind {
			f.dismiss(n)
			f.mu.Unlock()
			return after, joined, err
		}
		f.mu.Unlock()
		for _, e := range kept {
			if e.at.seq <= after { // the read has it
				continue
			}
			give(e)
			after = e.at.seq
			if err = s.to.flush(ctx); err != nil {
				break
			}
		}
	}
}

// add adds a member, unless it was unsubscribed while it joined. The caller holds f.mu.
func (f *feed) add(s *subscriber, topic int, after uint64) {
	if s.topics[topic].gone {
		return
	}
	f.members = append(f.members, membership{s, topic, after})
	s.topics[topic].slot = int32(len(f.members))
}

// remove removes a client, if it is a member.
func (f *feed) remove(s *subscriber, topic int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(s, topic)
}

// expel removes a client for good, also one that is not a member yet. It reports whether this is
// the first time.
func (f *feed) expel(s *subscriber, topic int) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = !s.topics[topic].gone
	s.topics[topic].gone = true
	f.drop(s, topic)
	return first
}

// drop removes a client, if it is a member. The last member takes its place. The caller holds f.mu.
func (f *feed) drop(s *subscriber, topic int) {
	slot := s.topics[topic].slot
	if slot == 0 {
		return
	}
	last := f.members[len(f.members)-1]
	f.members[slot-1] = last
	last.client.topics[last.topic].slot = slot
	f.members[len(f.members)-1] = membership{}
	f.members = f.members[:len(f.members)-1]
	s.topics[topic].slot = 0
	if len(f.members) <= cap(f.members)/4 {
		f.members = slices.Clone(f.members) // a feed that many have left must not keep their places
	}
}
