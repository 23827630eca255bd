package gateway

import (
	"errors"
	"time"
)

var (
	errReplaced  = errors.New("gateway: the stream is another one")
	errBackwards = errors.New("gateway: the stream is shorter than it was")
)

// maxBackwards is the time for which audits may find a shorter stream. A new leader may have to catch up with itself, which
// takes long on a busy machine.
const maxBackwards = time.Minute

// backwards is the time since when audits find a shorter stream, or zero. It is not a number of audits: each route that
// changes, and each new topic, makes one begin, so many may run in a second.
type backwards time.Time

// note notes the result of an audit. It reports whether the stream has lost events.
func (b *backwards) note(err error, now time.Time) (lost bool) {
	since := time.Time(*b)
	switch {
	case err == nil: // an audit that fails otherwise says nothing about the length
		*b = backwards{}
	case !errors.Is(err, errBackwards):
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
			h.log.Warn("gateway: cannot compare topics with the stream", "error", err)
			continue
		}
		audited = max(audited, horizon)
	}
}

// auditOnce asks for the last event of each topic that has changed since the sequence audited. It returns the sequence up to
// which the answers are complete.
func (h *hub) auditOnce(audited uint64) (horizon uint64, err error) {
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
		return audited, nil
	}
	// A feed that is not in this list will ask for its last event later than the question above. So for such a feed, too,
	// nothing was missed up to s.last. A feed that has not begun is in the list: it reads up to what the audit finds when it
	// begins.
	var durable []*feed
	for _, f := range h.all() {
		if !f.live {
			durable = append(durable, f)
		}
	}
	horizon = s.last
	for len(durable) > 0 {
		n := min(len(durable), auditChunk)
		upTo, err := h.auditFeeds(durable[:n], audited)
		if err != nil {
			return 0, err
		}
		horizon = min(horizon, upTo)
		durable = durable[n:]
	}
	return horizon, nil
}

// auditFeeds compares some feeds with the stream.
func (h *hub) auditFeeds(feeds []*feed, audited uint64) (horizon uint64, err error) {
	filters := make([]string, len(feeds))
	for i, f := range feeds {
		filters[i] = storedPrefix + f.filter
	}
	changed, horizon, err := h.history.get(h.ctx, getRequest{Seq: audited + 1, MultiLast: filters})
	if errors.Is(err, errTooMany) { // a wildcard stands for more than 1,024 topics
		for _, f := range feeds {
			last, err := h.history.last(h.ctx, f.filter)
			if err != nil {
				return 0, err
			}
			h.repair(f, last)
		}
		return audited, nil
	}
	if err != nil {
		return 0, err
	}
	for _, m := range changed {
		e, err := stored(m, h.epoch)
		if err != nil {
			return 0, err
		}
		for _, f := range feeds {
			if covers(f.filter, e.topic) {
				h.repair(f, e.at.seq)
			}
		}
	}
	for _, f := range feeds { // events up to the horizon are dispatched, or below target
		f.mu.Lock()
		if f.begun && !f.reading && f.floor >= f.target {
			f.checked.Store(max(f.checked.Load(), horizon))
		}
		f.mu.Unlock()
	}
	if horizon == 0 {
		horizon = audited // nothing of these topics is stored
	}
	return horizon, nil
}

func (h *hub) repair(f *feed, seq uint64) {
	if f.reach(seq) {
		h.count.repairs.Add(1)
	}
}
