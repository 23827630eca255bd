package gateway

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	errReplaced  = errors.New("gateway: the stream is another one")
	errBackwards = errors.New("gateway: the stream is shorter than it was")
)

// maxBackwards is the time for which audits may find a shorter stream, or none. A new leader may
// have to catch up with itself, which takes long on a busy machine.
const maxBackwards = time.Minute

// backwards is the time since when audits find a shorter stream or none, or zero. It is not a number of audits: each route that
// changes, and each new topic, makes one begin, so many may run in a second.
type backwards time.Time

// note notes the result of an audit. It reports whether the stream has lost events.
func (b *backwards) note(err error, now time.Time) (lost bool) {
	since := time.Time(*b)
	switch {
	case err == nil: // an audit that fails otherwise says nothing about the length
		*b = backwards{}
	case !errors.Is(err, errBackwards) && !errors.Is(err, errDeleted):
	case since.IsZero():
		*b = backwards(now)
	default:
		return now.Sub(since) >= maxBackwards
	}
	return false
}

// auditNow makes an audit begin soon: something has happened that may have lost republished events, such as the loss of a
// route.
func (h *hub) auditNow() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// audit compares the last sequence of each topic of this node with the stream's, every few seconds and when it is asked to.
// It finds events that were lost and have no successor.
func (h *hub) audit() {
	var audited uint64 // up to this sequence, nothing was missed
	var shorter backwards
	ticker := time.NewTicker(auditInterval)
	defer ticker.Stop()
	pause := time.After(0)
	for {
		select {
		case <-ticker.C:
		case <-h.kick:
		case <-h.ctx.Done():
			return
		}
		select {
		case <-pause:
		case <-h.ctx.Done():
			return
		}
		began := time.Now()
		horizon, err := h.auditOnce(audited)
		// Routes that change and topics that are new make audits begin at once, which must not keep the leader busy.
		pause = time.After(min(auditPause*time.Since(began), auditInterval))
		h.count.audits.Add(1)
		if shorter.note(err, time.Now()) || errors.Is(err, errReplaced) {
			h.log.Error("gateway: the stream was replaced or has lost events; the gateway ends")
			h.onReset()
			return
		}
		if err != nil && h.ctx.Err() == nil {
			h.count.auditFailures.Add(1)
			h.log.Warn("gateway: cannot compare topics with the stream", "err", err)
			continue
		}
		audited = max(audited, horizon)
	}
}

// auditOnce asks for the last event of each topic that has changed since the sequence audited. It returns the sequence up to
// which the answers are complete.
func (h *hub) auditOnce(audited uint64) (horizon uint64, err error) {
	began := time.Now()
	s, err := h.history.state(h.ctx)
	if err != nil {
		return 0, err
	}
	h.seen.Store(&s)
	switch {
	case s.epoch != h.epoch:
		return 0, errReplaced
	case s.last < audited:
		return 0, errBackwards
	case s.last == audited:
		h.kept.Store(&retained{s.last, s.keeps, began, s.maxAge})
		return audited, nil
	}
	// A feed that is not in this list will ask for its last event later than the question above. So for such a feed, too,
	// nothing was missed up to s.last. A feed that has not begun is in the list: it reads up to what the audit finds when it
	// begins.
	var durable []*feed
	for _, f := range h.all() {
		if !f.live() {
			durable = append(durable, f)
		}
	}
	horizon = s.last
	for len(durable) > 0 {
		n := min(len(durable), auditChunk)
		upTo, err := h.auditFeeds(durable[:n], audited, &s)
		if err != nil {
			return 0, err
		}
		horizon = min(horizon, upTo)
		durable = durable[n:]
	}
	h.kept.Store(&retained{s.last, s.keeps, began, s.maxAge})
	return horizon, nil
}

// auditFeeds compares some feeds with the stream.
func (h *hub) auditFeeds(feeds []*feed, audited uint64, s *streamState) (
	horizon uint64, err error) {
	changed, horizon, err := h.lastEvents(feeds, audited, s)
	switch {
	case errors.Is(err, errTooMany) && len(feeds) > 1: // a wildcard has more than 1,024 topics
		upTo, err := h.auditFeeds(feeds[:len(feeds)/2], audited, s)
		if err != nil {
			return 0, err
		}
		horizon, err = h.auditFeeds(feeds[len(feeds)/2:], audited, s)
		return min(horizon, upTo), err
	case errors.Is(err, errTooMany):
		if horizon, err = h.auditLeader(feeds[0], audited, s); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, err
	}
	for _, m := range changed {
		e, err := stored(m, h.epoch)
		if err != nil {
			return 0, err
		}
		for _, f := range feeds {
			if covers(f.filter(), e.topic) {
				h.repair(f, e.at.seq)
			}
		}
	}
	// Events may have been stored since the last audit, and have left the stream.
	now, err := h.history.first(h.ctx)
	if err != nil {
		return 0, err
	}
	for _, f := range feeds { // events up to the horizon are dispatched, or below target
		f.pass(horizon, now.first)
	}
	return horizon, nil
}

// lastEvents asks a replica for the last event of each topic of the feeds, after the sequence
// audited. The horizon is the replica's last sequence, or audited if it is not known.
func (h *hub) lastEvents(feeds []*feed, audited uint64, s *streamState) (
	found []*nats.Msg, horizon uint64, err error) {
	r := getRequest{Seq: audited + 1}
	for _, f := range feeds {
		r.MultiLast = append(r.MultiLast, storedPrefix+f.filter())
	}
	got, err := h.history.get(h.ctx, r)
	if err == nil && len(got.messages) == 0 {
		// An answer without events does not say how much of the stream the replica has. So the
		// topic of the last event is added to the question.
		last, failed := h.history.get(h.ctx, getRequest{Seq: s.last, Batch: 1})
		if failed == nil && len(last.messages) == 1 {
			r.MultiLast = append(r.MultiLast, last.messages[0].Header.Get("Nats-Subject"))
			got, err = h.history.get(h.ctx, r)
		}
	}
	return got.messages, max(got.horizon, audited), err
}

// auditLeader compares a feed with what the leader says.
func (h *hub) auditLeader(f *feed, audited uint64, s *streamState) (horizon uint64, err error) {
	last, err := h.history.last(h.ctx, f.filter())
	if err != nil {
		return 0, err
	}
	h.repair(f, last)
	now, err := h.history.state(h.ctx)
	if err != nil || !now.since.Equal(s.since) { // another leader may not have had all that s has
		return audited, err
	}
	return s.last, nil
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
func (h *hub) keptSince(after, seq uint64, stamp string) bool {
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

func (h *hub) repair(f *feed, seq uint64) {
	if f.reach(seq) {
		h.count.repairs.Add(1)
	}
}
