package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A history reads the stream of the durable topics.
//
// Batches and last sequences are read by direct get, which any replica answers. A replica may lag
// behind the leader, but what it has is a beginning of the stream: if an answer has an event, it
// has every earlier one of its filter. So a reader that knows the sequence of an event can tell
// when it has everything up to that event, and asks again until it has.
type history struct {
	conn *nats.Conn
	name string          // of the stream
	ctx  context.Context // ends requests that are under way
	// slots bounds the requests under way that read events. When a node dies, thousands of clients
	// come back to the others at once; without a bound, their reads keep the stream's locks and the
	// connection's goroutine in the leader busy, and publishers get no acknowledgement until all
	// are done.
	slots chan struct{}

	states question[streamState]
	edges  question[edge] // of first

	hole  holeKey // the leader's hole; used by the goroutine of states, as is whole
	whole uint64  // from here on, the leader has every event

	mu       sync.Mutex
	previous streamState // the last answer of the leader
}

// confirmed reports whether there is a leader that has heard from enough replicas to know that there
// is no other one. One that was stopped takes itself for the leader until it has heard of the new
// one. A replica that was stopped knows of no leader, and answers for itself.
func (s *streamState) confirmed() bool {
	active, led := 0, false
	for _, m := range s.members {
		if led = led || m.Leader; m.Leader || !m.Offline && m.Active < recently {
			active++
		}
	}
	return led && active > len(s.members)/2
}

// A holeKey says which hole a leader has. It is the same one while the leader has dropped nothing
// of it.
type holeKey struct {
	leader  string
	missing int
}

// A question is a request to the stream that several goroutines share. get returns an answer that
// is newer than the call: calls that come while a request is under way share the one after it, so
// that a thousand clients that connect at once cost two requests.
type question[T any] struct {
	ask  func() (T, error)
	work *sync.WaitGroup // counts the goroutine of serve

	mu     sync.Mutex
	asking bool
	next   *reply[T] // to the request that has not begun
}

type reply[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns an answer that is newer than the call.
func (q *question[T]) get(ctx context.Context) (value T, err error) {
	q.mu.Lock()
	r := q.next
	if r == nil {
		r = &reply[T]{done: make(chan struct{})}
		q.next = r
		if !q.asking {
			q.asking = true
			q.work.Go(q.serve)
		}
	}
	q.mu.Unlock()
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
		q.mu.Lock()
		r := q.next
		q.next = nil
		if r == nil {
			q.asking = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		r.value, r.err = q.ask()
		close(r.done)
	}
}

func (h *history) init(conn *nats.Conn, name string, ctx context.Context, work *sync.WaitGroup) {
	h.conn, h.name, h.ctx, h.slots = conn, name, ctx, make(chan struct{}, maxReads)
	h.states.ask, h.states.work = h.askState, work
	h.edges.ask, h.edges.work = h.askFirst, work
}

// A streamState is what the leader says of the stream.
type streamState struct {
	epoch       string
	eras        []era
	first, last uint64        // replicas may have dropped what is before first, for its age
	keeps       uint64        // so many events are kept at least, up to the age maxAge
	maxAge      time.Duration // no limit is a long time
	members     []Member
	since       time.Time // since when there is this leader, and its stream has not become shorter
}

// leader returns the name of the leader, or the empty string without a cluster.
func (s *streamState) leader() string {
	for _, m := range s.members {
		if m.Leader {
			return m.Name
		}
	}
	return ""
}

const (
	maxReads   = 8 // under way; more only wait for each other in the server
	batchSize  = 256
	batchBytes = 1 << 20
	recordHead = 1 << 10 // bytes in which a stored event is larger than its message, at most
	// The clocks of the nodes differ by so much at most, or by an eighth of the retention.
	maxSkew = time.Second
)

// requestTimeout bounds one request to NATS. It is a variable, so that a test can show that a request
// ends before.
var requestTimeout = 5 * time.Second

var (
	errNoStream   = errors.New("gateway: the stream cannot be read")
	errDeleted    = fmt.Errorf("%w: it was deleted", errNoStream)
	errNoLeader   = fmt.Errorf("%w: it has no leader that most of its replicas follow", errNoStream)
	errTooMany    = errors.New("gateway: too many topics for one answer")
	errUnexpected = errors.New("gateway: unexpected answer of JetStream")
)

// state asks the leader for the state of the stream. The answer is newer than the call. It fails
// with errNoLeader if there is no leader of several replicas that is confirmed: what another server
// answers may be as old as the time when it was stopped.
func (h *history) state(ctx context.Context) (streamState, error) { return h.states.get(ctx) }

func (h *history) askState() (streamState, error) {
	s, err := h.readState()
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.previous
	if err != nil {
		p.since = time.Time{}
		return s, err
	}
	if s.since = p.since; s.leader() != p.leader() || s.last < p.last || p.since.IsZero() {
		s.since = time.Now()
	}
	*p = s
	return s, nil
}

func (h *history) readState() (s streamState, err error) {
	asked := time.Now()
	var answer struct {
		Error *apiError
		jetstream.StreamInfo
		Cluster struct {
			Leader   string
			Replicas []Member
		} `json:"cluster"`
	}
	if err := h.call(h.ctx, "STREAM.INFO.", nil, &answer); err != nil {
		return s, err
	}
	switch e := answer.Error; {
	case e == nil:
	case e.ErrCode == int(jetstream.JSErrCodeStreamNotFound):
		return s, errDeleted
	default:
		return s, fmt.Errorf("%w: %s", errNoStream, e.Description)
	}
	members := answer.Cluster.Replicas
	if name := answer.Cluster.Leader; name != "" {
		members = append([]Member{{Name: name, Leader: true, Current: true}}, members...)
	}
	c := &answer.Config
	s = streamState{epoch: c.Metadata[epochKey], eras: erasOf(c.Metadata),
		first: answer.State.FirstSeq, last: answer.State.LastSeq, members: members,
		keeps: math.MaxUint64, maxAge: math.MaxInt64}
	if c.Replicas > 1 && !s.confirmed() {
		return s, errNoLeader
	}
	if c.MaxAge > 0 {
		s.maxAge = c.MaxAge
	}
	if c.MaxBytes > 0 {
		largest := int64(c.MaxMsgSize)
		if largest <= 0 {
			largest = h.conn.MaxPayload()
		}
		s.keeps = uint64(c.MaxBytes / (largest + recordHead))
	}
	if c.MaxMsgs > 0 {
		s.keeps = min(s.keeps, uint64(c.MaxMsgs))
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
		s.first = max(s.first, h.whole)
	}
	if c.MaxAge > 0 && s.first <= s.last {
		young := asked.Add(min(maxSkew, c.MaxAge/8) - c.MaxAge)
		if answer.State.FirstTime.Before(young) {
			since, err := h.find(h.ctx, map[string]any{
				"start_time": young.UTC(), "next_by_subj": storedPrefix + ">"})
			switch {
			case err != nil:
				return s, err
			case since > 0:
				s.first = max(s.first, since)
			case answer.State.LastTime.Before(young):
				s.first = s.last + 1
			default: // another node takes itself for the leader
				return s, errBehind
			}
		}
	}
	return s, nil
}

// find returns the sequence of the event that a request describes, or 0. The leader answers.
func (h *history) find(ctx context.Context, request any) (uint64, error) {
	var answer struct {
		Error   *apiError
		Message struct{ Seq uint64 }
	}
	err := h.call(ctx, "STREAM.MSG.GET.", request, &answer)
	switch e := answer.Error; {
	case err != nil:
		return 0, err
	case e != nil && e.Code == 404:
		return 0, nil
	case e != nil:
		return 0, fmt.Errorf("%w: %s", errNoStream, e.Description)
	}
	return answer.Message.Seq, nil
}

type apiError struct {
	Code        int
	ErrCode     int `json:"err_code"`
	Description string
}

// call makes one request of JetStream's API, which the leader of the stream answers.
func (h *history) call(ctx context.Context, what string, request, answer any) error {
	var body []byte
	if request != nil {
		body = encode(request)
	}
	ctx, cancel := h.bound(ctx)
	defer cancel()
	return callAPI(ctx, h.conn, "$JS.API."+what+h.name, body, answer)
}

// bound returns a context for one request: it ends with its caller's, with the history, and after
// requestTimeout.
func (h *history) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// callAPI makes one request of JetStream's API.
func callAPI(ctx context.Context, conn *nats.Conn, subject string, request []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, subject, request)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStream, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	return nil
}

// An edge has the sequence from which on the stream has every event, and that of the last event
// that the leader knew of.
type edge struct{ first, last uint64 }

// first returns the edge of the stream. The question is newer than the call. So what was read
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
func (h *history) first(ctx context.Context) (edge, error) { return h.edges.get(ctx) }

func (h *history) askFirst() (edge, error) {
	ctx, cancel := context.WithTimeout(h.ctx, requestTimeout)
	defer cancel()
	s, err := h.state(ctx)
	if err != nil || len(s.members) <= 1 {
		return edge{s.first, s.last}, err
	}
	request := encode(getRequest{Seq: 1, Next: ">"})
	m, err := h.conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+h.name, request)
	if err != nil {
		return edge{}, fmt.Errorf("%w: %w", errNoStream, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return edge{}, errUnexpected
		}
		return edge{max(seq, s.first), s.last}, nil
	case "404": // the replica has no event
		return edge{s.first, s.last}, nil
	default:
		return edge{}, fmt.Errorf("%w: %s %s", errUnexpected, status, m.Header.Get("Description"))
	}
}

// acquire takes a slot, which release gives back.
func (h *history) acquire(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
}

func (h *history) release() { <-h.slots }

// last returns the sequence of the last event of a filter, or 0. The leader answers.
func (h *history) last(ctx context.Context, filter string) (uint64, error) {
	if err := h.acquire(ctx); err != nil {
		return 0, err
	}
	defer h.release()
	return h.find(ctx, map[string]string{"last_by_subj": storedPrefix + filter})
}

// A getRequest is a direct get.
type getRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	Next      string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// A batch is the answer to a direct get.
type batch struct {
	messages []*nats.Msg
	left     uint64 // messages that the request matches and that are not in the answer
	horizon  uint64 // the replica's last sequence, where it says so, or 0
}

// get makes a direct get.
func (h *history) get(ctx context.Context, r getRequest) (found batch, err error) {
	if err := h.acquire(ctx); err != nil {
		return found, err
	}
	defer h.release()
	inbox := h.conn.NewInbox()
	sub, err := h.conn.SubscribeSync(inbox)
	if err != nil {
		return found, fmt.Errorf("%w: %w", errNoStream, err)
	}
	defer sub.Unsubscribe()
	if err := h.conn.PublishRequest("$JS.API.DIRECT.GET."+h.name, inbox, encode(r)); err != nil {
		return found, fmt.Errorf("%w: %w", errNoStream, err)
	}
	for {
		next, cancel := h.bound(ctx)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return found, fmt.Errorf("%w: %w", errNoStream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			found.messages = append(found.messages, m)
		case "204": // the end of the batch
			pending := m.Header.Get("Nats-Num-Pending")
			found.left, _ = strconv.ParseUint(pending, 10, 64)
			if pending == "0" { // nothing was left out for its size
				found.horizon, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
			}
			return found, nil
		case "404":
			return found, nil
		case "413":
			return found, errTooMany
		default:
			return found, fmt.Errorf("%w: %s %s", errUnexpected, status, m.Header.Get("Description"))
		}
	}
}

// before returns the sequence after which a filter has n events, or all that it has if these are
// fewer. A replica that lags knows of fewer events than the leader; then there are more than n.
func (h *history) before(ctx context.Context, filter string, n int, s streamState) (
	seq uint64, err error) {
	first := max(s.first, 1)
	// From low on there are more than n, unless it is 0; from end on, fewer.
	low, end := uint64(0), s.last+1
	for width := uint64(n); end > first && end-low > 1; width *= 8 {
		at := end - min(width, end-first)
		if low > 0 {
			at = low + (end-low)/2
		}
		found, err := h.get(ctx, getRequest{Seq: at, Next: storedPrefix + filter, Batch: 1})
		if err != nil {
			return 0, err
		}
		switch count := uint64(len(found.messages)) + found.left; {
		case count == uint64(n), count < uint64(n) && at == first:
			return at - 1, nil
		case count > uint64(n):
			low = at
		default:
			end = at
		}
	}
	return max(low, first) - 1, nil
}

// has reports whether the event with a sequence has the data. It does not know that of one that has
// left the stream, or that cannot be read now, and says yes.
func (h *history) has(ctx context.Context, seq uint64, data []byte) bool {
	if err := h.acquire(ctx); err != nil {
		return true
	}
	defer h.release()
	var answer struct {
		Error   *apiError
		Message struct{ Data []byte }
	}
	err := h.call(ctx, "STREAM.MSG.GET.", map[string]uint64{"seq": seq}, &answer)
	return err != nil || answer.Error != nil || bytes.Equal(answer.Message.Data, data)
}

// stored makes an event of a message that a direct get has returned.
func stored(m *nats.Msg, epoch string) (*event, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	topic, ok := strings.CutPrefix(m.Header.Get("Nats-Subject"), storedPrefix)
	if err != nil || !ok {
		return nil, errUnexpected
	}
	return &event{topic: topic, data: m.Data, at: position{epoch, seq}}, nil
}

// A span is the events with sequences above after, up to and including through.
type span struct{ after, through uint64 }

// replay calls visit for each event of a filter after a sequence, in order, at least up to the
// event with the sequence through, which must exist or have existed. It calls lost, in between, for
// each span in which the stream no longer has events; some of them may have been of the filter. It
// returns the sequence up to which it has come. If visit returns an error, replay ends with it.
//
// Retention may overtake a read at any time, also one that is under way. So replay asks what the
// stream's first event is after each batch that has not every sequence, and before it calls visit
// for what the batch has.
func (h *history) replay(ctx context.Context, epoch, filter string, after, through uint64,
	visit func(*event) error, lost func(span)) (last uint64, err error) {
	wait := 5 * time.Millisecond
	for after < through {
		if ctx.Err() != nil {
			return after, context.Cause(ctx)
		}
		next := getRequest{Seq: after + 1, Next: storedPrefix + filter, Batch: batchSize, MaxBytes: batchBytes}
		found, err := h.get(ctx, next)
		if err != nil {
			return after, err
		}
		events := make([]*event, len(found.messages))
		for i, m := range found.messages {
			if events[i], err = stored(m, epoch); err != nil {
				return after, err
			}
		}
		first := uint64(0)
		if n := len(events); n == 0 || events[n-1].at.seq != after+uint64(n) {
			now, err := h.first(ctx)
			if err != nil {
				return after, err
			}
			if n > 0 && now.last < events[n-1].at.seq {
				return after, errBehind // it was paused, and does not know of the next leader
			}
			first = now.first
		}
		for _, e := range events {
			if end := min(first, e.at.seq); end > after+1 {
				lost(span{after, end - 1})
			}
			if err := visit(e); err != nil {
				return after, err
			}
			after = e.at.seq
		}
		switch {
		case len(events) > 0:
			continue
		case first > through:
			lost(span{after, first - 1})
			return first - 1, nil
		}
		sleep(ctx, wait) // the replica lags
		wait = min(2*wait, 200*time.Millisecond)
	}
	return after, nil
}
