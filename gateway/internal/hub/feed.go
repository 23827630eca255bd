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
// What follows is true of each shard that the feed reads: one, but for a filter with wildcards where
// there are several.
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
	reading   bool // the shard, or the first of several
	closed    bool
	Mu        sync.Mutex
	Newcomers *newcomer // who read what they have missed
	Members   []membership
	lane            // of the shard, or of the first of several
	wide      *wide // of the other ones; nil if there are none
}

// A lane is how far a feed has come in a shard.
type lane struct {
	Floor   uint64
	target  uint64
	Checked atomic.Uint64 // like floor, by the last audit; it may be the higher one
}

// A wide is what a feed has that reads several shards.
type wide struct {
	others []struct {
		lane
		reading bool
	}
	// ahead are the members that have events which this feed has yet to dispatch, and their positions.
	ahead map[*Subscriber]event.Position
}

// width returns the number of shards that the feed reads.
func (f *Feed) width() int {
	if f.wide == nil {
		return 1
	}
	return 1 + len(f.wide.others)
}

// of returns how far the feed has come in the i-th of its shards, and whether it reads that.
func (f *Feed) of(i int) (l *lane, reading *bool) {
	if i == 0 {
		return &f.lane, &f.reading
	}
	o := &f.wide.others[i-1]
	return &o.lane, &o.reading
}

// placeOf returns which of the feed's shards has a topic.
func (f *Feed) placeOf(topic string) int {
	if f.wide == nil {
		return 0
	}
	return f.Hub.shardOf(topic)
}

// position returns the floors. The caller holds f.mu.
func (f *Feed) position() event.Position {
	p := event.Position{Epoch: f.Hub.Epoch, Seq: f.Floor}
	if f.wide != nil {
		p.Others = make([]uint64, len(f.wide.others))
		for i := range p.Others {
			p.Others[i] = f.wide.others[i].Floor
		}
	}
	return p
}

// settled returns the position up to which there is nothing to dispatch. The caller holds f.mu.
func (f *Feed) settled() event.Position {
	p := f.position()
	p.Seq = f.Settled()
	for i := range p.Others {
		p.Others[i] = f.wide.others[i].Settled()
	}
	return p
}

// Advance returns the position of a member, moved up to where an audit has found no further event.
//
// A feed gives an event to its members before it says so in Checked.
func (f *Feed) Advance(at event.Position) (to event.Position, moved bool) {
	if f.Live() {
		return at, false
	}
	if at.Width() != f.width() { // the member has read streams that take no event any more
		at, moved = event.All(at.Epoch, max(at.Seq, f.Hub.now().base), f.width()), true
	}
	for i := range f.width() {
		l, _ := f.of(i)
		if checked := l.Checked.Load(); checked > at.In(i) {
			at, moved = at.With(i, checked), true
		}
	}
	return at, moved
}

// A membership is a client of a feed. Clients are in a slice, in the order in which they have come:
// in the order of a map, which is random, each write to one of 5,000 sockets costs about a sixth
// more.
type membership struct {
	client *Subscriber
	topic  int    // the feed's place among the client's topics
	after  uint64 // the client has what is up to this sequence, if the feed reads one shard
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
	i := f.placeOf(topic)
	l, reading := f.of(i)
	if seq <= l.target {
		return // read already, or about to be
	}
	l.target = seq
	switch {
	case !f.begun, *reading: // what will be read has it
	case !f.Wild && previous <= l.Floor &&
		(previous > 0 || f.shard(i).keptSince(l.Settled(), seq, m.Header.Get("Nats-Time-Stamp"))):
		f.Dispatch(&event.Event{Topic: topic, Data: m.Data, At: event.Position{Epoch: f.Hub.Epoch, Seq: seq}})
		l.Floor = seq
	default:
		if !f.Wild && previous > 0 {
			f.Hub.Count.Gaps.Add(1)
		}
		f.startReading(i)
	}
}

// shard returns the i-th of the feed's shards.
func (f *Feed) shard(i int) *Shard { return f.Hub.shardsOf(f)[i] }

// reach makes the feed read one of its shards up to an event that is stored, unless it has been
// dispatched.
func (f *Feed) reach(i int, seq uint64) (behind bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	l, _ := f.of(i)
	if seq <= l.target {
		return false
	}
	l.target = seq
	f.startReading(i)
	return true
}

// Settled returns the sequence up to which there is nothing to dispatch. The caller holds the feed's mu.
func (l *lane) Settled() uint64 { return max(l.Floor, l.Checked.Load()) }

// Begin sets the floor of each shard to the sequence of the filter's last event, or to what has left
// the stream where that is more.
func (f *Feed) Begin(floors ...uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.begun = true
	for i, floor := range floors {
		l, _ := f.of(i)
		l.Floor = floor
		if l.target > floor { // events were republished before the answer came
			f.startReading(i)
		}
		l.target = max(l.target, floor)
	}
}

// startReading starts the goroutine that reads a shard. The caller holds f.mu.
func (f *Feed) startReading(i int) {
	if _, reading := f.of(i); f.begun && !*reading && !f.closed {
		*reading = true
		f.Hub.Work.Go(func() { f.read(i) })
	}
}

// read reads a shard until floor has reached target.
func (f *Feed) read(i int) {
	h := f.Hub
	l, reading := f.of(i)
	from := f.shard(i).History
	for {
		f.Mu.Lock()
		if f.closed || l.Floor >= l.target {
			*reading = false
			f.Mu.Unlock()
			return
		}
		after, through := min(l.Settled(), l.target-1), l.target
		f.Mu.Unlock()
		_, err := from.Replay(h.Ctx, h.Epoch, f.Filter(), after, through, func(e *event.Event) error {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			f.Dispatch(e)
			l.Floor = e.At.Seq
			l.target = max(l.target, e.At.Seq)
			return nil
		}, func(missed event.Span) {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			f.Lose(i, missed)
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
	if f.wide != nil {
		e.Shard = f.placeOf(e.Topic)
		at := f.settled().With(e.Shard, e.At.Seq)
		e.Wide = &at
	}
	for n := f.Newcomers; n != nil; n = n.next {
		n.keep(e)
	}
	if f.wide != nil {
		f.dispatchWide(e)
		return
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

// dispatchWide gives an event of one of several shards to all members. The position in it is that of the
// feed. A member that is ahead of the feed in another shard gets the event with its own. The caller holds
// f.mu.
func (f *Feed) dispatchWide(e *event.Event) {
	delivered := uint64(0)
	for _, m := range f.Members {
		own := e
		if at, ok := f.wide.ahead[m.client]; ok {
			if e.At.Seq <= at.In(e.Shard) {
				continue // it has the event
			}
			if at = at.Max(*e.Wide); e.Wide.Covers(at) {
				delete(f.wide.ahead, m.client)
			} else {
				f.wide.ahead[m.client] = at
				own = e.For(at)
			}
		}
		if m.client.Deliver(m.topic, own) {
			delivered++
		}
	}
	f.Hub.Count.Delivered.Add(delivered)
}

// Lose tells the members that they do not get the events of a span of one of the feed's shards, except
// those members that have them. The caller holds f.mu.
func (f *Feed) Lose(i int, missed event.Span) {
	for _, m := range f.Members {
		span, after := missed, m.after
		if f.wide != nil {
			at := f.settled()
			if ahead, ok := f.wide.ahead[m.client]; ok {
				at = at.Max(ahead)
			}
			after = at.In(i)
			span.Wide = &event.Wide{After: at.With(i, max(missed.After, after)), Through: at.With(i, missed.Through)}
		}
		if missed.Through > after {
			span.After = max(missed.After, after)
			m.client.To.Gap(m.topic, event.GapRetention, span)
		}
	}
	for n := f.Newcomers; n != nil; n = n.next { // a read finds the gap
		n.give()
		n.behind = true
	}
	l, _ := f.of(i)
	l.Floor = max(l.Floor, missed.Through)
	l.target = max(l.target, l.Floor)
}

// pass notes the result of an audit: in one of its shards the filter has no event above target up to
// horizon, and what is below first has left the stream.
func (f *Feed) pass(i int, horizon, first uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	l, reading := f.of(i)
	if !f.begun || *reading || l.Floor < l.target {
		return // what is read is compared, too
	}
	if after := l.Settled(); first > after+1 {
		f.Lose(i, event.Span{After: after, Through: first - 1})
	}
	l.Checked.Store(max(l.Checked.Load(), horizon))
}

// add adds a member, unless it was unsubscribed while it joined. The caller holds f.mu.
func (f *Feed) add(s *Subscriber, topic int, after event.Position) {
	if s.Topics[topic].gone {
		return
	}
	if f.wide != nil && !f.position().Covers(after) {
		if f.wide.ahead == nil {
			f.wide.ahead = make(map[*Subscriber]event.Position)
		}
		f.wide.ahead[s] = after
	}
	f.Members = append(f.Members, membership{s, topic, after.Seq})
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
	if f.wide != nil {
		delete(f.wide.ahead, s)
	}
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
// known to be stored. Of several shards the first one is the highest, and the other one has the
// events of all that are to be dispatched.
func (f *Feed) State() (members int, floor, target uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for i := range f.width() {
		l, _ := f.of(i)
		floor = max(floor, l.Floor)
		target += l.target - l.Floor
	}
	return len(f.Members), floor, floor + target
}
