package hub

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A Feed is one filter that clients of this node want, and these clients. It has one subscription
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
type Feed struct {
	Hub     *Hub
	Subject string             // that it listens to
	Sub     *nats.Subscription // guarded by hub.mu, once the feed is among those of the hub
	Special Special            // of a topic of the gateway's own, or nil
	refs    int32              // clients that join or have joined; guarded by hub.mu
	Wild    bool

	// What follows is guarded by mu, which is held while an event is given to all members.
	begun     bool // floor is known
	reading   bool
	closed    bool
	Mu        sync.Mutex
	Newcomers *newcomer // who read what they have missed
	Members   []membership
	Floor     uint64
	target    uint64
	Checked   atomic.Uint64 // like floor, by the last audit; it may be the higher one
}

// A membership is a client of a feed. Clients are in a slice, in the order in which they have come:
// in the order of a map, which is random, each write to one of 5,000 sockets costs about a sixth
// more.
type membership struct {
	client *Subscriber
	topic  int    // the feed's place among the client's topics
	after  uint64 // the client has what is up to this sequence
}

// Filter returns the filter, a part of the subject.
func (f *Feed) Filter() string { return f.Subject[len(event.LivePrefix):] }

func (f *Feed) Live() bool { return event.IsLive(f.Filter()) }

// SubjectOf returns the subject of NATS that the feed of a filter listens to.
func SubjectOf(filter string) string {
	if event.IsLive(filter) {
		return event.LivePrefix + filter
	}
	return event.RepublishedPrefix + filter
}

// Receive handles a message of the feed's subscription.
func (f *Feed) Receive(m *nats.Msg) {
	if f.Live() {
		if len(m.Data) > f.Hub.largest {
			f.Hub.Count.Strange.Add(1) // published on NATS, past this gateway's limit
			return
		}
		e := &event.Event{Topic: strings.TrimPrefix(m.Subject, event.LivePrefix), Data: m.Data}
		f.Mu.Lock()
		if f.Special == nil || f.Special.Take(e) {
			f.Dispatch(e)
		}
		f.Mu.Unlock()
		return
	}
	topic, ok := strings.CutPrefix(m.Subject, event.RepublishedPrefix)
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	previous, err2 := strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	if !ok || err != nil || err2 != nil {
		f.Hub.Count.Strange.Add(1) // published by a program that must not publish here
		return
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if seq <= f.target {
		return // read already, or about to be
	}
	f.target = seq
	switch {
	case !f.begun, f.reading: // what will be read has it
	case !f.Wild && previous <= f.Floor &&
		(previous > 0 || f.Hub.keptSince(f.Settled(), seq, m.Header.Get("Nats-Time-Stamp"))):
		f.Dispatch(&event.Event{Topic: topic, Data: m.Data, At: event.Position{Epoch: f.Hub.Epoch, Seq: seq}})
		f.Floor = seq
	default:
		if !f.Wild && previous > 0 {
			f.Hub.Count.Gaps.Add(1)
		}
		f.startReading()
	}
}

// reach makes the feed read the stream up to an event that is stored, unless it has been
// dispatched.
func (f *Feed) reach(seq uint64) (behind bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if seq <= f.target {
		return false
	}
	f.target = seq
	f.startReading()
	return true
}

// Settled returns the sequence up to which there is nothing to dispatch. The caller holds f.mu.
func (f *Feed) Settled() uint64 { return max(f.Floor, f.Checked.Load()) }

// Begin sets floor to the sequence of the filter's last event, or to what has left the stream where
// that is more.
func (f *Feed) Begin(floor uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.begun, f.Floor = true, floor
	if f.target > floor { // events were republished before the answer came
		f.startReading()
	}
	f.target = max(f.target, floor)
}

// startReading starts the goroutine that reads the stream. The caller holds f.mu.
func (f *Feed) startReading() {
	if f.begun && !f.reading && !f.closed {
		f.reading = true
		f.Hub.Work.Go(f.read)
	}
}

// read reads the stream until floor has reached target.
func (f *Feed) read() {
	h := f.Hub
	for {
		f.Mu.Lock()
		if f.closed || f.Floor >= f.target {
			f.reading = false
			f.Mu.Unlock()
			return
		}
		after, through := min(f.Settled(), f.target-1), f.target
		f.Mu.Unlock()
		_, err := h.History.Replay(h.Ctx, h.Epoch, f.Filter(), after, through, func(e *event.Event) error {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			f.Dispatch(e)
			f.Floor = e.At.Seq
			f.target = max(f.target, e.At.Seq)
			return nil
		}, func(missed event.Span) {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			f.Lose(missed)
		})
		if err != nil {
			stream.Sleep(h.Ctx, 100*time.Millisecond)
		}
		if h.Ctx.Err() != nil {
			return
		}
	}
}

// Dispatch gives an event to all members. No member makes it wait. The caller holds f.mu.
func (f *Feed) Dispatch(e *event.Event) {
	f.Hub.Count.Events.Add(1)
	for n := f.Newcomers; n != nil; n = n.next {
		n.keep(e)
	}
	var chosen Choice
	if f.Special != nil {
		var ok bool
		if chosen, ok = f.Special.Choose(e); !ok {
			f.Hub.Count.Strange.Add(1)
			return
		}
	}
	delivered := uint64(0)
	for _, m := range f.Members {
		switch {
		case e.At.Seq > 0 && e.At.Seq <= m.after: // it has the event
		case chosen != nil && chosen.Give(m.client.To), chosen == nil && m.client.Deliver(m.topic, e):
			delivered++
		}
	}
	f.Hub.Count.Delivered.Add(delivered)
}

// Lose tells the members that they do not get the events of a span, except those members that have
// them. The caller holds f.mu.
func (f *Feed) Lose(missed event.Span) {
	for _, m := range f.Members {
		if missed.Through > m.after {
			m.client.To.Gap(m.topic, event.GapRetention, event.Span{After: max(missed.After, m.after), Through: missed.Through})
		}
	}
	for n := f.Newcomers; n != nil; n = n.next { // a read finds the gap
		n.give()
		n.behind = true
	}
	f.Floor = max(f.Floor, missed.Through)
	f.target = max(f.target, f.Floor)
}

// pass notes the result of an audit: the filter has no event above target up to horizon, and what
// is below first has left the stream.
func (f *Feed) pass(horizon, first uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if !f.begun || f.reading || f.Floor < f.target {
		return // what is read is compared, too
	}
	if after := f.Settled(); first > after+1 {
		f.Lose(event.Span{After: after, Through: first - 1})
	}
	f.Checked.Store(max(f.Checked.Load(), horizon))
}

// add adds a member, unless it was unsubscribed while it joined. The caller holds f.mu.
func (f *Feed) add(s *Subscriber, topic int, after uint64) {
	if s.Topics[topic].gone {
		return
	}
	f.Members = append(f.Members, membership{s, topic, after})
	s.Topics[topic].slot = int32(len(f.Members))
}

// expel removes a client for good, also one that is not a member yet. It reports whether this is
// the first time.
func (f *Feed) expel(s *Subscriber, topic int) (first bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	first = !s.Topics[topic].gone
	s.Topics[topic].gone = true
	f.drop(s, topic)
	return first
}

// drop removes a client, if it is a member. The last member takes its place. The caller holds f.mu.
func (f *Feed) drop(s *Subscriber, topic int) {
	slot := s.Topics[topic].slot
	if slot == 0 {
		return
	}
	last := f.Members[len(f.Members)-1]
	f.Members[slot-1] = last
	last.client.Topics[last.topic].slot = slot
	f.Members[len(f.Members)-1] = membership{}
	f.Members = f.Members[:len(f.Members)-1]
	s.Topics[topic].slot = 0
	if len(f.Members) <= cap(f.Members)/4 {
		f.Members = slices.Clone(f.Members) // a feed that many have left must not keep their places
	}
}

// Moved notes that the others learn whether a client is a member. It reports whether it is, and
// whether that is news to them.
func (f *Feed) Moved(s *Subscriber, topic int) (joined, news bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	t := &s.Topics[topic]
	joined = t.slot != 0
	news = joined != t.told
	t.told = joined
	return joined, news
}

// Lock and Unlock lock the feed. While it is locked no event is given to its members.
func (f *Feed) Lock()   { f.Mu.Lock() }
func (f *Feed) Unlock() { f.Mu.Unlock() }

// Each calls visit for the members, until it returns false. told says that the others know that the
// member has joined. The feed is locked.
func (f *Feed) Each(visit func(s *Subscriber, told bool) bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, m := range f.Members {
		if !visit(m.client, m.client.Topics[m.topic].told) {
			return
		}
	}
}

// State returns the number of members, and the sequences up to which events were dispatched and are
// known to be stored.
func (f *Feed) State() (members int, floor, target uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return len(f.Members), f.Floor, f.target
}
