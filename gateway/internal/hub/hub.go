package hub

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A Hub has the feeds of this node: one for each filter that a client wants. It subscribes in NATS
// when the first client wants a filter, and unsubscribes when the last one leaves.
type Hub struct {
	Conn    *nats.Conn
	History *stream.History // of the first shard, which has the gateway's own topics
	Shards  []*Shard
	Epoch   string // of the streams, for the life of the hub
	log     *slog.Logger
	largest int             // bytes of an event of a live topic; JetStream bounds the others
	Ctx     context.Context // done when the hub is closed
	Cancel  context.CancelFunc
	Work    sync.WaitGroup
	Inboxes []chan *nats.Msg // each filter's messages come through one of them, in order
	seed    maphash.Seed     // of the filters' hashes
	OnReset func()           // a stream is another one
	Count   counters
	// generations are the streams from which events are read. Those of the last one are of Shards.
	generations []generation
	Clients     clientSet
	// OnLeaderless, if not nil, is called again and again while the hub is Leaderless.
	OnLeaderless func()
	// owners have the topics of the gateway's own whose feeds are special.
	owners []owner
	// onChange, if not nil, is called when a client may have joined or left one of its topics, and
	// onJoin when it has joined all of them.
	OnChange func(s *Subscriber, topic int)
	OnJoin   func(s *Subscriber)
	// A client that has seen more than the stream's leader has is right for so long after the
	// leader has changed: a new leader may have to catch up with itself. A single node has no such
	// reason.
	Patience time.Duration
	// hold bounds the time for which such a client waits, and one that comes while there is no
	// leader. It is sent away then, to come back.
	Hold time.Duration

	Mu       sync.RWMutex      // not held while NATS is asked
	feeds    map[string]*Feed  // by subject
	Starting map[string]*Start // by subject, the feeds that are being made
	hidden   int               // feeds of the gateway's own topics
	closed   bool
}

// counters are those of gateway.Stats that the hub has.
type counters struct {
	Events, Delivered, Gaps, Repairs atomic.Uint64
	Resumed, Strange                 atomic.Uint64
	Audits, AuditFailures            atomic.Uint64
}

const (
	inboxSize     = 64 << 10 // messages that wait to be dispatched; more are lost, and read from the stream
	auditInterval = 3 * time.Second
	auditPause    = 4   // an audit is followed by a pause of so many times its duration
	auditChunk    = 200 // topics in one request
	firstAudit    = 250 * time.Millisecond
	maxHold       = 3 * time.Second
)

var (
	errHubClosed = errors.New("gateway: closed")
)

// New returns the hub of the streams of a layout. ctx bounds the wait for their leaders.
func New(ctx context.Context, conn *nats.Conn, layout stream.Layout, largest int, log *slog.Logger) (*Hub, error) {
	h := &Hub{Conn: conn, log: log, largest: largest, feeds: make(map[string]*Feed),
		Starting: make(map[string]*Start), seed: maphash.MakeSeed()}
	h.Clients.Node = stream.NewEpoch()
	h.Ctx, h.Cancel = context.WithCancel(context.Background())
	for i, g := range layout.Generations {
		h.generations = append(h.generations, generation{g.Base, stream.NewHistories(conn, layout, i, h.Ctx, &h.Work)})
	}
	if err := h.newShards(ctx); err != nil {
		h.Close()
		return nil, err
	}
	h.History = h.Shards[0].History
	h.Hold = maxHold
	for range runtime.GOMAXPROCS(0) {
		in := make(chan *nats.Msg, inboxSize)
		h.Inboxes = append(h.Inboxes, in)
		h.Work.Go(func() { h.dispatch(in) })
	}
	for _, s := range h.Shards {
		h.Work.Go(s.audit)
	}
	return h, nil
}

// wait returns the state of the stream, when it can be read.
func (h *Shard) wait(ctx context.Context) (stream.State, error) {
	began := time.Now() // a member may not know yet of a stream that another one has just made
	s, err := h.History.State(ctx)
	for errors.Is(err, stream.ErrNoStream) && ctx.Err() == nil &&
		(!errors.Is(err, stream.ErrDeleted) || time.Since(began) < stream.RequestTimeout) {
		if stream.Sleep(ctx, 200*time.Millisecond) { // an election may be under way, or the leader is busy
			s, err = h.History.State(ctx)
		}
	}
	return s, err
}

// dispatch hands messages to their feeds. It waits for none.
func (h *Hub) dispatch(in chan *nats.Msg) {
	for {
		select {
		case m := <-in:
			h.Mu.RLock()
			f := h.feeds[m.Sub.Subject]
			current := f != nil && f.Sub == m.Sub // and not one that had the subject before
			h.Mu.RUnlock()
			if current {
				f.Receive(m)
			}
		case <-h.Ctx.Done():
			return
		}
	}
}

func (h *Hub) Inbox(subject string) chan *nats.Msg {
	return h.Inboxes[maphash.String(h.seed, subject)%uint64(len(h.Inboxes))]
}

// Feed returns the feed of a filter, or nil if there is none.
func (h *Hub) Feed(filter string) *Feed {
	h.Mu.RLock()
	defer h.Mu.RUnlock()
	return h.feeds[SubjectOf(filter)]
}

// Size returns the number of feeds that are not of the gateway's own topics.
func (h *Hub) Size() int {
	h.Mu.RLock()
	defer h.Mu.RUnlock()
	return len(h.feeds) - h.hidden
}

// HasBegun reports whether a feed is not being made any more.
func (h *Hub) HasBegun(f *Feed) bool {
	h.Mu.RLock()
	defer h.Mu.RUnlock()
	return h.Starting[f.Subject] == nil
}

// All returns the feeds that there are.
func (h *Hub) All() []*Feed {
	h.Mu.RLock()
	defer h.Mu.RUnlock()
	return slices.Collect(maps.Values(h.feeds))
}

// Close ends the hub's goroutines. Clients must have left, and none may join.
func (h *Hub) Close() {
	h.Mu.Lock()
	h.closed = true
	h.Mu.Unlock()
	h.Cancel()
	h.Work.Wait()
}
