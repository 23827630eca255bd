package hub

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

var (
	errReplaced  = errors.New("gateway: the stream is another one")
	ErrBackwards = errors.New("gateway: the stream is shorter than it was")
)

// MaxBackwards is the time for which audits may find a shorter stream, or none. A new leader may
// have to catch up with itself, which takes long on a busy machine.
const MaxBackwards = time.Minute

// Backwards is the time since when audits find a shorter stream or none, or zero. It is not a number of audits: each route that
// changes, and each new topic, makes one begin, so many may run in a second.
type Backwards time.Time

// Note notes the result of an audit. It reports whether the stream has lost events.
func (b *Backwards) Note(err error, now time.Time) (lost bool) {
	since := time.Time(*b)
	switch {
	case err == nil: // an audit that fails otherwise says nothing about the length
		*b = Backwards{}
	case !errors.Is(err, ErrBackwards) && !errors.Is(err, stream.ErrDeleted):
	case since.IsZero():
		*b = Backwards(now)
	default:
		return now.Sub(since) >= MaxBackwards
	}
	return false
}

// MaxLeaderless is the time for which audits may find no leader of several replicas. This node's
// clients of durable topics are sent to other nodes then, of which some may have one. An election is
// shorter, also on a busy machine.
const MaxLeaderless = 30 * time.Second

// leaderless is the time since when audits find no leader, or zero.
type leaderless time.Time

// note notes the result of an audit. It reports whether there was no leader for too long.
func (l *leaderless) note(err error, now time.Time) bool {
	switch {
	case !errors.Is(err, stream.ErrNoStream) || errors.Is(err, stream.ErrDeleted):
		*l = leaderless{}
	case time.Time(*l).IsZero():
		*l = leaderless(now)
	default:
		return now.Sub(time.Time(*l)) >= MaxLeaderless
	}
	return false
}

// AuditNow makes an audit begin soon: something has happened that may have lost republished events, such as the loss of a
// route.
func (h *Hub) AuditNow() {
	for _, s := range h.Shards {
		s.auditNow()
	}
}

func (h *Shard) auditNow() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// placeIn returns which of a feed's shards this one is.
func (h *Shard) placeIn(f *Feed) int {
	if f.wide == nil {
		return 0
	}
	return h.number
}

// audit compares the last sequence of each topic of this node with the stream's, every few seconds and when it is asked to.
// It finds events that were lost and have no successor.
func (h *Shard) audit() {
	var audited uint64 // up to this sequence, nothing was missed
	var shorter Backwards
	var without leaderless
	ticker := time.NewTicker(auditInterval)
	defer ticker.Stop()
	pause := time.After(0)
	for {
		select {
		case <-ticker.C:
		case <-h.kick:
		case <-h.hub.Ctx.Done():
			return
		}
		select {
		case <-pause:
		case <-h.hub.Ctx.Done():
			return
		}
		began := time.Now()
		horizon, err := h.AuditOnce(audited)
		// Routes that change and topics that are new make audits begin at once, which must not keep the leader busy.
		pause = time.After(min(auditPause*time.Since(began), auditInterval))
		h.hub.Count.Audits.Add(1)
		if shorter.Note(err, time.Now()) || errors.Is(err, errReplaced) {
			h.hub.log.Error("gateway: the stream was replaced or has lost events; the gateway ends")
			h.hub.OnReset()
			return
		}
		// A single node's clients have no other one.
		h.noteLeaderless(without.note(err, time.Now()) && h.hub.Patience > 0)
		if err != nil && h.hub.Ctx.Err() == nil {
			h.hub.Count.AuditFailures.Add(1)
			h.hub.log.Warn("gateway: cannot compare topics with the stream", "err", err)
			continue
		}
		audited = max(audited, horizon)
	}
}

// noteLeaderless notes after an audit whether there was no leader for too long. If so, it has the
// clients of durable topics sent away, each time, because some may have joined since.
func (h *Shard) noteLeaderless(lost bool) {
	switch before := h.leaderless.Swap(lost); {
	case lost && !before:
		h.hub.log.Warn("gateway: the stream has no leader; clients of its topics are sent to other nodes")
	case before && !lost:
		h.hub.log.Info("gateway: the stream has a leader again")
	}
	if lost && h.hub.OnLeaderless != nil {
		h.hub.OnLeaderless()
	}
}

// AuditOnce asks for the last event of each topic that has changed since the sequence audited. It returns the sequence up to
// which the answers are complete.
func (h *Shard) AuditOnce(audited uint64) (horizon uint64, err error) {
	began := time.Now()
	s, err := h.History.State(h.hub.Ctx)
	if err != nil {
		return 0, err
	}
	h.Seen.Store(&s)
	h.spread(&s)
	switch {
	case s.Epoch != h.hub.Epoch, s.Ended:
		return 0, errReplaced
	case s.Last < audited:
		return 0, ErrBackwards
	case s.Last == audited:
		h.kept.Store(&retained{s.Last, s.Keeps, began, s.MaxAge})
		return audited, nil
	}
	// A feed that is not in this list will ask for its last event later than the question above. So for such a feed, too,
	// nothing was missed up to s.last. A feed that has not begun is in the list: it reads up to what the audit finds when it
	// begins.
	var durable []*Feed
	for _, f := range h.hub.All() {
		if !f.Live() && slices.Contains(h.hub.shardsOf(f), h) {
			durable = append(durable, f)
		}
	}
	horizon = s.Last
	for len(durable) > 0 {
		n := min(len(durable), auditChunk)
		upTo, err := h.auditFeeds(durable[:n], audited, &s)
		if err != nil {
			return 0, err
		}
		horizon = min(horizon, upTo)
		durable = durable[n:]
	}
	h.kept.Store(&retained{s.Last, s.Keeps, began, s.MaxAge})
	return horizon, nil
}

// auditFeeds compares some feeds with the stream.
func (h *Shard) auditFeeds(feeds []*Feed, audited uint64, s *stream.State) (
	horizon uint64, err error) {
	changed, horizon, err := h.lastEvents(feeds, audited, s)
	switch {
	case errors.Is(err, stream.ErrTooMany) && len(feeds) > 1: // a wildcard has more than 1,024 topics
		upTo, err := h.auditFeeds(feeds[:len(feeds)/2], audited, s)
		if err != nil {
			return 0, err
		}
		horizon, err = h.auditFeeds(feeds[len(feeds)/2:], audited, s)
		return min(horizon, upTo), err
	case errors.Is(err, stream.ErrTooMany):
		if horizon, err = h.auditLeader(feeds[0], audited, s); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, err
	}
	for _, m := range changed {
		e, err := h.History.Stored(m, h.hub.Epoch)
		if err != nil {
			return 0, err
		}
		for _, f := range feeds {
			if event.Covers(f.Filter(), e.Topic) {
				h.repair(f, e.At.Seq)
			}
		}
	}
	// Events may have been stored since the last audit, and have left the stream.
	now, err := h.History.First(h.hub.Ctx)
	if err != nil {
		return 0, err
	}
	for _, f := range feeds { // events up to the horizon are dispatched, or below target
		f.pass(h.placeIn(f), horizon, now.First)
	}
	return horizon, nil
}

// lastEvents asks a replica for the last event of each topic of the feeds, after the sequence
// audited. The horizon is the replica's last sequence, or audited if it is not known.
func (h *Shard) lastEvents(feeds []*Feed, audited uint64, s *stream.State) (
	found []*nats.Msg, horizon uint64, err error) {
	r := stream.GetRequest{Seq: audited + 1}
	for _, f := range feeds {
		r.MultiLast = append(r.MultiLast, h.History.Subject(f.Filter()))
	}
	got, err := h.History.Get(h.hub.Ctx, r)
	if err == nil && len(got.Messages) == 0 {
		// An answer without events does not say how much of the stream the replica has. So the
		// topic of the last event is added to the question.
		last, failed := h.History.Get(h.hub.Ctx, stream.GetRequest{Seq: s.Last, Batch: 1})
		if failed == nil && len(last.Messages) == 1 {
			r.MultiLast = append(r.MultiLast, last.Messages[0].Header.Get("Nats-Subject"))
			got, err = h.History.Get(h.hub.Ctx, r)
		}
	}
	return got.Messages, max(got.Horizon, audited), err
}

// auditLeader compares a feed with what the leader says.
func (h *Shard) auditLeader(f *Feed, audited uint64, s *stream.State) (horizon uint64, err error) {
	last, err := h.History.Last(h.hub.Ctx, f.Filter())
	if err != nil {
		return 0, err
	}
	h.repair(f, last)
	now, err := h.History.State(h.hub.Ctx)
	if err != nil || !now.Since.Equal(s.Since) { // another leader may not have had all that s has
		return audited, err
	}
	return s.Last, nil
}

// retained is what an audit has found out of the retention: events after last were stored after the
// time at. The stream has at least the last keeps events, if they are not older than maxAge.
type retained struct {
	last, keeps uint64
	at          time.Time
	maxAge      time.Duration
}

// keptSince reports whether no event after the sequence after can have left the stream before the
// event seq was stored. stamp is when the leader has stored that. If not, the retention may have
// overtaken this node. The node's own clock does not say how much time has passed: that of a virtual
// machine stands still while the machine is suspended.
func (h *Shard) keptSince(after, seq uint64, stamp string) bool {
	if seq <= after+1 {
		return true
	}
	k := h.kept.Load()
	if k == nil || after < k.last || seq-after > k.keeps {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	return err == nil && at.Sub(k.at) < k.maxAge/2
}

func (h *Shard) repair(f *Feed, seq uint64) {
	if f.reach(h.placeIn(f), seq) {
		h.hub.Count.Repairs.Add(1)
	}
}
