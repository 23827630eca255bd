package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A hub has the feeds of this node: one for each filter that a client wants. It subscribes in NATS
// when the first client wants a filter, and unsubscribes when the last one leaves.
type hub struct {
	conn    *nats.Conn
	history history
	epoch   string // of the stream, for the life of the hub
	log     *slog.Logger
	largest int             // bytes of an event of a live topic; JetStream bounds the others
	ctx     context.Context // done when the hub is closed
	cancel  context.CancelFunc
	work    sync.WaitGroup
	inboxes []chan *nats.Msg            // each filter's messages come through one of them, in order
	seed    maphash.Seed                // of the filters' hashes
	kick    chan struct{}               // makes audit run now
	seen    atomic.Pointer[streamState] // at the last audit
	kept    atomic.Pointer[retained]    // by the last audit
	onReset func()                      // the stream is another one
	// carryOut is Gateway.carryOut.
	carryOut func(order, *subscriber)
	count    counters
	clients  clientSet
	presence *presence // nil if no topic has it
	// A client that has seen more than the stream's leader has is right for so long after the
	// leader has changed: a new leader may have to catch up with itself. A single node has no such
	// reason.
	patience time.Duration
	// hold bounds the time for which such a client waits, and one that comes while there is no
	// leader. It is sent away then, to come back.
	hold time.Duration

	mu       sync.RWMutex      // not held while NATS is asked
	feeds    map[string]*feed  // by subject
	starting map[string]*start // by subject, the feeds that are being made
	own      int               // feeds of the gateway's own topics
	closed   bool
}

// counters are those of Stats.
type counters struct {
	clients                              atomic.Int64
	events, delivered, gaps, repairs     atomic.Uint64
	published, refused, rejected, denied atomic.Uint64
	resumed, strange                     atomic.Uint64
	hooks, hookFailures                  atomic.Uint64
	audits, auditFailures                atomic.Uint64
}

// A sink is the connection of a client. None of its methods waits for the peer, except for flush.
type sink interface {
	send(topic int, e *event)                  // topic is the event's place among the client's topics
	gap(topic int, reason string, missed span) // the client gets no event of the span of this topic
	flush(ctx context.Context) error
	end(g *Gateway, reason error)       // ends the client, because of errDrain, errExpired or errKicked
	unsubscribed(g *Gateway, topic int) // the client gets no further event of the topic
}

// The reasons of gaps, as clients get them.
const (
	gapRetention = "retention" // the stream no longer has what the client asked for
	gapEpoch     = "epoch"     // the id is of another stream
	gapSlow      = "slow"      // events were dropped because the client reads too slowly
)

// A gap is what a client is told of events that it does not get.
type gap struct {
	Reason string `json:"reason"`
	Missed []miss `json:"missed"`
}

// A miss is the part of a gap that is of one topic: its events with ids after After, up to and
// including Last. Both are empty for live topics.
type miss struct {
	Topic string `json:"topic"` // as the client has asked for it
	After string `json:"after,omitempty"`
	Last  string `json:"last,omitempty"`
}

// add adds the miss of a topic, unless there is no reason. The client's id being of another stream
// is the reason that counts.
func (g *gap) add(reason string, m miss) {
	if reason == "" {
		return
	}
	if g.Reason != gapEpoch {
		g.Reason = reason
	}
	g.Missed = append(g.Missed, m)
}

// missOf returns the miss of one of a client's topics.
func (s *subscriber) missOf(topic int, missed span) miss {
	f := s.topics[topic].feed
	if f.live() {
		return miss{Topic: f.filter()}
	}
	epoch := f.hub.epoch
	return miss{f.filter(), position{epoch, missed.after}.String(), position{epoch, missed.through}.String()}
}

// A backlog is the events that were dropped because a client reads too slowly, by topic, and of
// which it was not told. All events of a topic are dropped from the first on, until the client is
// told. It is nil for other clients.
type backlog map[int]span

// add notes that the events of a span were dropped.
func (b *backlog) add(topic int, missed span) {
	if *b == nil {
		*b = make(backlog)
	}
	if before, ok := (*b)[topic]; ok {
		missed.after = before.after
	}
	(*b)[topic] = missed
}

// gap returns what the client is to be told.
func (b backlog) gap(s *subscriber) gap {
	g := gap{Reason: gapSlow}
	for i := range s.topics {
		if missed, ok := b[i]; ok {
			g.Missed = append(g.Missed, s.missOf(i, missed))
		}
	}
	return g
}

// alone is the span of one event.
func (e *event) alone() span { return span{max(e.at.seq, 1) - 1, e.at.seq} }

// A subscriber is what the hub knows of a client.
type subscriber struct {
	to     sink
	topics []subscription
	*identity
	id    uint64
	place int // in clientSet.all, and one more; guarded by its mu
}

// An identity is what the grant of a client says of it. It is nil for a subscriber without an id.
type identity struct {
	user    string // its subject
	expires int64  // seconds since 1970, or 0
}

var anonymous identity // shared by the clients that have no user and do not expire

// A subscription is one topic of a client. It is not copied.
type subscription struct {
	*feed
	slot int32  // the client's place in feed.members and one more, or 0; guarded by feed.mu
	gone bool   // the client was unsubscribed; guarded by feed.mu
	told bool   // the others know that the client has joined; guarded by feed.mu
	at   uint64 // the position of an eventStream; guarded by its mu
}

// deliver gives an event of one of the client's topics to the client. If several of them match the
// event, the first one counts; deliver reports whether that was this one. A wildcard that matches a
// live topic stands for durable ones alone, and has no such event. No wildcard stands for a topic
// of the gateway's own.
func (s *subscriber) deliver(topic int, e *event) bool {
	if s.topics[topic].wild && isReserved(e.topic) {
		return false
	}
	live := topic > 0 && s.topics[topic].live()
	for i := range topic {
		if f := s.topics[i].feed; f.live() == live && covers(f.filter(), e.topic) {
			return false
		}
	}
	s.to.send(topic, e)
	return true
}

const (
	inboxSize     = 64 << 10 // messages that wait to be dispatched; more are lost, and read from the stream
	auditInterval = 3 * time.Second
	auditPause    = 4   // an audit is followed by a pause of so many times its duration
	auditChunk    = 200 // topics in one request
	firstAudit    = 250 * time.Millisecond
	maxHold       = 3 * time.Second
	recently      = 3 * time.Second // nats-server waits for 4 seconds before an election
)

var (
	errExpired   = errors.New("gateway: the token has expired")
	errDrain     = errors.New("gateway: the node is being drained")
	errHubClosed = errors.New("gateway: closed")
	errBehind    = errors.New("gateway: the stream's leader is behind")
)

// sleep waits for a time. It reports whether that has passed, and not ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func newHub(ctx context.Context, conn *nats.Conn, name string, largest int, log *slog.Logger) (*hub, error) {
	h := &hub{conn: conn, log: log, largest: largest, feeds: make(map[string]*feed),
		starting: make(map[string]*start),
		kick:     make(chan struct{}, 1), seed: maphash.MakeSeed()}
	h.clients.node = newEpoch()
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.history.init(conn, name, h.ctx, &h.work)
	s, err := h.history.state(ctx)
	for errors.Is(err, errNoStream) && !errors.Is(err, errDeleted) && ctx.Err() == nil {
		if sleep(ctx, 200*time.Millisecond) { // an election may be under way, or the leader is busy
			s, err = h.history.state(ctx)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	h.epoch = s.epoch
	h.hold = maxHold
	if len(s.members) > 1 {
		h.patience = maxBackwards
	}
	h.seen.Store(&s)
	for range runtime.GOMAXPROCS(0) {
		in := make(chan *nats.Msg, inboxSize)
		h.inboxes = append(h.inboxes, in)
		h.work.Go(func() { h.dispatch(in) })
	}
	h.work.Go(h.audit)
	return h, nil
}

// dispatch hands messages to their feeds. It waits for none.
func (h *hub) dispatch(in chan *nats.Msg) {
	for {
		select {
		case m := <-in:
			h.mu.RLock()
			f := h.feeds[m.Sub.Subject]
			current := f != nil && f.sub == m.Sub // and not one that had the subject before
			h.mu.RUnlock()
			if current {
				f.receive(m)
			}
		case <-h.ctx.Done():
			return
		}
	}
}

// acquire returns the feed of a filter, and counts a reference to it. It makes the feed if there is
// none. NATS is asked without h.mu, which the events of all other topics need.
func (h *hub) acquire(ctx context.Context, filter string) (*feed, error) {
	subject := subjectOf(filter)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errHubClosed
	}
	s := h.starting[subject]
	if s == nil {
		if f := h.feeds[subject]; f != nil {
			f.refs++
			h.mu.Unlock()
			return f, nil
		}
		s = &start{done: make(chan struct{})}
		h.starting[subject] = s
		h.work.Go(func() { h.make(s, filter) })
	}
	s.refs++
	h.mu.Unlock()
	select {
	case <-s.done:
		return s.feed, s.failed
	case <-ctx.Done():
		h.abandon(s)
		return nil, context.Cause(ctx)
	}
}

// A start is a feed that is being made, and the clients that wait for it. The feed is among the
// feeds of the hub as soon as it has its subscription, so that it gets messages.
type start struct {
	refs   int32         // clients that wait; guarded by hub.mu
	done   chan struct{} // closed when feed or failed is set
	feed   *feed
	failed error
}

// make makes a feed.
func (h *hub) make(s *start, filter string) {
	f, err := h.addFeed(filter)
	if err == nil {
		err = h.begin(f)
	}
	h.started(s, filter, f, err)
}

// started notes the result of make. f is nil if there was no subscription.
func (h *hub) started(s *start, filter string, f *feed, err error) {
	h.mu.Lock()
	delete(h.starting, subjectOf(filter)) // those who come now try again, if it has failed
	if f != nil {
		f.refs = s.refs
	}
	unused := f != nil && (err != nil || f.refs == 0)
	if unused {
		h.forget(f)
	}
	if s.failed = err; err == nil {
		s.feed = f
	}
	close(s.done)
	h.mu.Unlock()
	if unused {
		f.close()
	}
}

// abandon takes a client off that does not wait any more.
func (h *hub) abandon(s *start) {
	h.mu.Lock()
	select {
	case <-s.done:
		h.mu.Unlock()
		if s.failed == nil {
			h.release(s.feed)
		}
	default:
		s.refs--
		h.mu.Unlock()
	}
}

// forget removes a feed from those of the hub. The caller holds h.mu, and calls close.
func (h *hub) forget(f *feed) {
	delete(h.feeds, f.sub.Subject)
	if isReserved(f.filter()) {
		h.own--
	}
}

// close ends the subscription of a feed that was forgotten. Messages that are under way do not find
// it, and those of a feed that is made in its place have another subscription.
func (f *feed) close() {
	f.sub.Unsubscribe()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
}

// addFeed subscribes for a new feed. begin and started must follow.
//
// A message that comes before the feed is among those of the hub is lost. If the topic is durable,
// the event was stored before begin asks where the feed begins. If it is live, no client waits for
// it.
func (h *hub) addFeed(filter string) (*feed, error) {
	f := &feed{hub: h, wild: isWild(filter)}
	if of, ok := presenceOf(filter); ok {
		f.roster = &roster{of: of, members: make(map[string]attendee)}
	}
	subject := subjectOf(filter)
	var err error
	if f.sub, err = h.conn.ChanSubscribe(subject, h.inbox(subject)); err != nil {
		return nil, fmt.Errorf("gateway: subscribe: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.feeds[subject] = f
	if isReserved(filter) {
		h.own++
	}
	return f, nil
}

func (h *hub) inbox(subject string) chan *nats.Msg {
	return h.inboxes[maphash.String(h.seed, subject)%uint64(len(h.inboxes))]
}

// begin finds out where a new feed begins. The subscription has reached this node's server, so what
// is stored after the question is republished to the feed, or, where the subscription has not
// reached the leader's server yet, found by an audit.
func (h *hub) begin(f *feed) error {
	if f.roster != nil {
		if err := f.refresh(h.ctx); err != nil {
			return err
		}
	}
	if f.live() {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, requestTimeout)
	defer cancel()
	if err := h.conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("gateway: subscribe: %w", err)
	}
	floor, err := h.history.last(h.ctx, f.filter())
	if err != nil {
		return err
	}
	now, err := h.history.first(h.ctx)
	if err != nil {
		return err
	}
	f.begin(max(floor, max(now.first, 1)-1))
	time.AfterFunc(firstAudit, h.auditNow)
	return nil
}

// release drops a reference, and unsubscribes at the last one.
func (h *hub) release(f *feed) {
	h.mu.Lock()
	f.refs--
	unused := f.refs == 0
	if unused {
		h.forget(f)
	}
	h.mu.Unlock()
	if unused {
		f.close()
	}
}

// A want is a filter, and the position after which the client wants its events. Without a position
// it begins with the last events that are stored, as many as last says.
type want struct {
	filter string
	after  position
	last   int
}

// durable reports whether one of the filters is of durable topics.
func durable(wants []want) bool {
	return slices.ContainsFunc(wants, func(w want) bool { return !isLive(w.filter) })
}

// locate fills in positions for a client that has none: it begins with what is stored from now on.
// It returns the gap that the client must be told of, or nil.
func (h *hub) locate(ctx context.Context, wants []want) (*gap, error) {
	if !durable(wants) {
		return nil, nil
	}
	began := time.Now()
	s, err := h.history.state(ctx)
	for errors.Is(err, errNoLeader) ||
		err == nil && ahead(wants, s) && h.patience > 0 && time.Since(s.since) < h.patience {
		if time.Since(began) >= h.hold {
			return nil, cmp.Or(err, errBehind)
		}
		if sleep(ctx, 200*time.Millisecond) {
			s, err = h.history.state(ctx)
		} else {
			err = errBehind
		}
	}
	if err != nil {
		return nil, err
	}
	var missed gap
	for i := range wants {
		w := &wants[i]
		reason, at := "", position{s.epoch, s.last}
		switch {
		case isLive(w.filter):
			w.after = position{}
			continue
		case w.after == position{}:
			if w.last > 0 {
				if at.seq, err = h.history.before(ctx, w.filter, w.last, s); err != nil {
					return nil, err
				}
				w.after = at
				continue
			}
		case w.after.epoch == beginning:
			w.after = position{s.epoch, max(s.first, 1) - 1}
			continue
		case w.after.epoch == s.epoch && w.after.seq <= s.last:
			h.count.resumed.Add(1)
			at = w.after
		default:
			i := slices.IndexFunc(s.eras, func(e era) bool { return e.Epoch == w.after.epoch })
			if i < 0 {
				reason = gapEpoch
				break
			}
			h.count.resumed.Add(1)
			seen := w.after.seq
			at.seq = min(seen, s.eras[i].Last)
			w.after = at
			for ; i >= 0; i-- {
				e := s.eras[i]
				if !e.Whole || seen > e.Last { // the stream of that era may have had more events
					after, last := position{e.Epoch, max(seen, e.Last)}, position{s.epoch, e.Last}
					missed.add(gapEpoch, miss{w.filter, after.String(), last.String()})
				}
				seen = 0 // of the later eras
			}
		}
		if reason == "" && s.first > at.seq+1 {
			reason, at.seq = gapRetention, s.first-1
		}
		missed.add(reason, miss{w.filter, w.after.String(), at.String()})
		w.after = at
	}
	if missed.Reason == "" {
		return nil, nil
	}
	return &missed, nil
}

// ahead reports whether a client has seen more than the stream has.
func ahead(wants []want, s streamState) bool {
	return slices.ContainsFunc(wants, func(w want) bool {
		return w.after.epoch == s.epoch && w.after.seq > s.last
	})
}

// join makes s a client of the filters. What it has missed is delivered first. If it fails, leave
// must be called all the same.
func (h *hub) join(ctx context.Context, s *subscriber, wants []want) error {
	h.clients.add(s)
	topics := make([]subscription, 0, len(wants))
	var err error
	for _, w := range wants {
		var f *feed
		if f, err = h.acquire(ctx, w.filter); err != nil {
			break
		}
		topics = append(topics, subscription{feed: f, at: w.after.seq})
	}
	h.clients.settle(s, topics) // all before the first event is delivered
	for i := range s.topics {
		if err != nil {
			return err
		}
		err = s.topics[i].attach(ctx, s, i, wants[i].after.seq)
	}
	if err != nil {
		return err
	}
	for i := range s.topics {
		h.tell(s, i)
	}
	for _, o := range h.clients.missed(s) { // the client knows its id already
		h.carryOut(o, s)
	}
	return nil
}

// leave undoes join.
func (h *hub) leave(s *subscriber) {
	h.clients.remove(s)
	for i := range s.topics {
		f := s.topics[i].feed
		f.remove(s, i)
		h.tell(s, i)
		h.release(f)
	}
}

func (h *hub) all() []*feed {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Values(h.feeds))
}

// close ends the hub's goroutines. Clients must have left, and none may join.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.work.Wait()
}
