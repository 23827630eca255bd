package stream

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A State is what the leader says of the stream.
type State struct {
	Epoch       string
	Eras        []Era
	First, Last uint64        // replicas may have dropped what is before first, for its age
	Keeps       uint64        // so many events are kept at least, up to the age maxAge
	MaxAge      time.Duration // no limit is a long time
	Oldest      time.Time     // when the first event was stored; zero if there is none
	Ended       bool          // it takes no event, because the number of shards has changed
	Members     []Replica
	Since       time.Time // since when there is this leader, and its stream has not become shorter
}

// leader returns the name of the leader, or the empty string without a cluster.
func (s *State) leader() string {
	for _, m := range s.Members {
		if m.Leader {
			return m.Name
		}
	}
	return ""
}

// A Replica is a server that has one of the stream, as gateway.Member has it.
type Replica struct {
	Name    string
	Leader  bool
	Current bool
	Offline bool
	Lag     uint64
	Active  time.Duration
}

// recently is the time for which a replica counts that the leader has heard of: nats-server waits for
// 4 seconds before an election.
const recently = 3 * time.Second

// confirmed reports whether there is a leader that has heard from enough replicas to know that there
// is no other one. One that was stopped takes itself for the leader until it has heard of the new
// one. A replica that was stopped knows of no leader, and answers for itself.
func (s *State) confirmed() bool {
	active, led := 0, false
	for _, m := range s.Members {
		if led = led || m.Leader; m.Leader || !m.Offline && m.Active < recently {
			active++
		}
	}
	return led && active > len(s.Members)/2
}

// A holeKey says which hole a leader has. It is the same one while the leader has dropped nothing
// of it.
type holeKey struct {
	leader  string
	missing int
}

// State asks the leader for the state of the stream. The answer is newer than the call. It fails
// with ErrNoLeader if there is no leader of several replicas that is confirmed: what another server
// answers may be as old as the time when it was stopped.
func (h *History) State(ctx context.Context) (State, error) { return h.States.get(ctx) }

func (h *History) askState() (State, error) {
	s, err := h.readState()
	h.Mu.Lock()
	defer h.Mu.Unlock()
	p := &h.Previous
	if err != nil {
		p.Since = time.Time{}
		return s, err
	}
	if s.Since = p.Since; s.leader() != p.leader() || s.Last < p.Last || p.Since.IsZero() {
		s.Since = time.Now()
	}
	*p = s
	return s, nil
}

func (h *History) readState() (s State, err error) {
	asked := time.Now()
	var answer struct {
		Error *apiError
		jetstream.StreamInfo
		Cluster struct {
			Leader   string
			Replicas []Replica
		} `json:"cluster"`
	}
	if err := h.call(h.ctx, "STREAM.INFO.", nil, &answer); err != nil {
		return s, err
	}
	switch e := answer.Error; {
	case e == nil:
	case e.ErrCode == int(jetstream.JSErrCodeStreamNotFound):
		return s, ErrDeleted
	default:
		return s, fmt.Errorf("%w: %s", ErrNoStream, e.Description)
	}
	members := answer.Cluster.Replicas
	if name := answer.Cluster.Leader; name != "" {
		members = append([]Replica{{Name: name, Leader: true, Current: true}}, members...)
	}
	c := &answer.Config
	s = State{Epoch: c.Metadata[EpochKey], Eras: erasOf(c.Metadata),
		First: answer.State.FirstSeq, Last: answer.State.LastSeq, Members: members,
		Keeps: math.MaxUint64, MaxAge: math.MaxInt64,
		Ended: slices.Equal(c.Subjects, []string{noSubject(h.name)}) && c.Metadata[closedKey] == ""}
	if answer.State.Msgs > 0 {
		s.Oldest = answer.State.FirstTime
	}
	if c.Replicas > 1 && !s.confirmed() {
		return s, ErrNoLeader
	}
	if c.MaxAge > 0 {
		s.MaxAge = c.MaxAge
	}
	if c.MaxBytes > 0 {
		largest := int64(c.MaxMsgSize)
		if largest <= 0 {
			largest = h.conn.MaxPayload()
		}
		s.Keeps = uint64(c.MaxBytes / (largest + recordHead))
	}
	if c.MaxMsgs > 0 {
		s.Keeps = min(s.Keeps, uint64(c.MaxMsgs))
	}
	if n := answer.State.NumDeleted; n > 0 { // the leader was a replica with a hole
		if hole := (holeKey{s.leader(), n}); hole != h.hole {
			details := map[string]bool{"deleted_details": true}
			if err := h.call(h.ctx, "STREAM.INFO.", details, &answer); err != nil {
				return s, err
			}
			if deleted := answer.State.Deleted; len(deleted) > 0 {
				h.hole, h.whole = hole, slices.Max(deleted)+1
			}
		}
		s.First = max(s.First, h.whole)
	}
	if c.MaxAge > 0 && s.First <= s.Last {
		young := asked.Add(min(MaxSkew, c.MaxAge/8) - c.MaxAge)
		if answer.State.FirstTime.Before(young) {
			since, err := h.find(h.ctx, map[string]any{
				"start_time": young.UTC(), "next_by_subj": h.Subject(">")})
			switch {
			case err != nil:
				return s, err
			case since > 0:
				s.First = max(s.First, since)
			case answer.State.LastTime.Before(young):
				s.First = s.Last + 1
			default: // another node takes itself for the leader
				return s, ErrBehind
			}
		}
	}
	return s, nil
}

// An edge has the sequence from which on the stream has every event, and that of the last event
// that the leader knew of.
type edge struct{ First, last uint64 }

// First returns the edge of the stream. The question is newer than the call. So what was read
// before the call has no hole after first-1, up to last: events leave the stream at its beginning.
//
// Each replica drops events for their age at a time of its own: not before they are old enough, but
// later if it was busy or paused, by any time. So another replica than the one that was read may
// still have what that one had dropped. Every event that is younger is in all of them, so the first
// of these counts, and not the first that the leader has (readState).
//
// In a cluster a replica is asked too, and what is higher counts: it may have dropped more for its
// size than the leader. It is the replica that has answered the read, wherever this node's server
// has one that is current: nats-server prefers it. The leader is asked because a replica that was
// away for longer than the retention has a hole: what is left of its old events, and then what the
// leader still had.
func (h *History) First(ctx context.Context) (edge, error) { return h.edges.get(ctx) }

func (h *History) askFirst() (edge, error) {
	ctx, cancel := context.WithTimeout(h.ctx, RequestTimeout)
	defer cancel()
	s, err := h.State(ctx)
	if err != nil || len(s.Members) <= 1 {
		return edge{s.First, s.Last}, err
	}
	request := event.Encode(GetRequest{Seq: 1, Next: ">"})
	m, err := h.conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+h.name, request)
	if err != nil {
		return edge{}, fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return edge{}, errUnexpected
		}
		return edge{max(seq, s.First), s.Last}, nil
	case "404": // the replica has no event
		return edge{s.First, s.Last}, nil
	default:
		return edge{}, fmt.Errorf("%w: %s %s", errUnexpected, status, m.Header.Get("Description"))
	}
}

// A question is a request to the stream that several goroutines share. get returns an answer that
// is newer than the call: calls that come while a request is under way share the one after it, so
// that a thousand clients that connect at once cost two requests.
type question[T any] struct {
	ask  func() (T, error)
	work *sync.WaitGroup // counts the goroutine of serve

	Mu     sync.Mutex
	Asking bool
	next   *reply[T] // to the request that has not begun
}

type reply[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns an answer that is newer than the call.
func (q *question[T]) get(ctx context.Context) (value T, err error) {
	q.Mu.Lock()
	r := q.next
	if r == nil {
		r = &reply[T]{done: make(chan struct{})}
		q.next = r
		if !q.Asking {
			q.Asking = true
			q.work.Go(q.serve)
		}
	}
	q.Mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// serve makes requests until no goroutine waits for one.
func (q *question[T]) serve() {
	for {
		q.Mu.Lock()
		r := q.next
		q.next = nil
		if r == nil {
			q.Asking = false
			q.Mu.Unlock()
			return
		}
		q.Mu.Unlock()
		r.value, r.err = q.ask()
		close(r.done)
	}
}
