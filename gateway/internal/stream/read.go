package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A History reads the stream of the durable topics.
//
// Batches and last sequences are read by direct get, which any replica answers. A replica may lag
// behind the leader, but what it has is a beginning of the stream: if an answer has an event, it
// has every earlier one of its filter. So a reader that knows the sequence of an event can tell
// when it has everything up to that event, and asks again until it has.
type History struct {
	conn   *nats.Conn
	name   string          // of the stream
	prefix string          // of the subjects of its events
	ctx    context.Context // ends requests that are under way
	// slots bounds the requests under way that read events. When a node dies, thousands of clients
	// come back to the others at once; without a bound, their reads keep the stream's locks and the
	// connection's goroutine in the leader busy, and publishers get no acknowledgement until all
	// are done.
	Slots chan struct{}

	States question[State]
	edges  question[edge] // of first

	hole  holeKey // the leader's hole; used by the goroutine of states, as is whole
	whole uint64  // from here on, the leader has every event

	Mu       sync.Mutex
	Previous State // the last answer of the leader
}

// NewHistories returns readers of the streams of one generation. ctx ends their requests, and work counts
// their goroutines.
func NewHistories(conn *nats.Conn, l Layout, generation int, ctx context.Context, work *sync.WaitGroup) []*History {
	all := make([]*History, l.Generations[generation].Shards)
	for shard := range all {
		prefix := event.StoredIn(shard, len(all))
		all[shard] = newHistory(conn, l.Stream(generation, shard), prefix, ctx, work)
	}
	return all
}

func newHistory(conn *nats.Conn, name, prefix string, ctx context.Context, work *sync.WaitGroup) *History {
	h := &History{conn: conn, name: name, prefix: prefix, ctx: ctx, Slots: make(chan struct{}, MaxReads)}
	h.States.ask, h.States.work = h.askState, work
	h.edges.ask, h.edges.work = h.askFirst, work
	return h
}

const (
	MaxReads   = 8 // under way; more only wait for each other in the server
	batchSize  = 256
	batchBytes = 1 << 20
	recordHead = 1 << 10 // bytes in which a stored event is larger than its message, at most
	// The clocks of the nodes differ by so much at most, or by an eighth of the retention.
	MaxSkew = time.Second
)

// RequestTimeout bounds one request to NATS. It is a variable, so that a test can show that a request
// ends before.
var RequestTimeout = 5 * time.Second

var (
	ErrNoStream   = errors.New("gateway: the stream cannot be read")
	ErrDeleted    = fmt.Errorf("%w: it was deleted", ErrNoStream)
	ErrNoLeader   = fmt.Errorf("%w: it has no leader that most of its replicas follow", ErrNoStream)
	ErrBehind     = errors.New("gateway: the stream's leader is behind")
	ErrTooMany    = errors.New("gateway: too many topics for one answer")
	errUnexpected = errors.New("gateway: unexpected answer of JetStream")
)

// find returns the sequence of the event that a request describes, or 0. The leader answers.
func (h *History) find(ctx context.Context, request any) (uint64, error) {
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
		return 0, fmt.Errorf("%w: %s", ErrNoStream, e.Description)
	}
	return answer.Message.Seq, nil
}

type apiError struct {
	Code        int
	ErrCode     int `json:"err_code"`
	Description string
}

// call makes one request of JetStream's API, which the leader of the stream answers.
func (h *History) call(ctx context.Context, what string, request, answer any) error {
	var body []byte
	if request != nil {
		body = event.Encode(request)
	}
	ctx, cancel := h.bound(ctx)
	defer cancel()
	return CallAPI(ctx, h.conn, "$JS.API."+what+h.name, body, answer)
}

// bound returns a context for one request: it ends with its caller's, with the history, and after
// requestTimeout.
func (h *History) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// CallAPI makes one request of JetStream's API.
func CallAPI(ctx context.Context, conn *nats.Conn, subject string, request []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, subject, request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	return nil
}

// Acquire takes a slot, which release gives back.
func (h *History) Acquire(ctx context.Context) error {
	select {
	case h.Slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
}

func (h *History) Release() { <-h.Slots }

// Last returns the sequence of the last event of a filter, or 0. The leader answers.
func (h *History) Last(ctx context.Context, filter string) (uint64, error) {
	if err := h.Acquire(ctx); err != nil {
		return 0, err
	}
	defer h.Release()
	return h.find(ctx, map[string]string{"last_by_subj": h.Subject(filter)})
}

// Subject returns the subject of the events of a filter.
func (h *History) Subject(filter string) string { return h.prefix + filter }

// A GetRequest is a direct get.
type GetRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	Next      string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// A batch is the answer to a direct get.
type batch struct {
	Messages []*nats.Msg
	left     uint64 // messages that the request matches and that are not in the answer
	Horizon  uint64 // the replica's last sequence, where it says so, or 0
}

// Get makes a direct get.
func (h *History) Get(ctx context.Context, r GetRequest) (found batch, err error) {
	if err := h.Acquire(ctx); err != nil {
		return found, err
	}
	defer h.Release()
	inbox := h.conn.NewInbox()
	sub, err := h.conn.SubscribeSync(inbox)
	if err != nil {
		return found, fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	defer sub.Unsubscribe()
	if err := h.conn.PublishRequest("$JS.API.DIRECT.GET."+h.name, inbox, event.Encode(r)); err != nil {
		return found, fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	for {
		next, cancel := h.bound(ctx)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return found, fmt.Errorf("%w: %w", ErrNoStream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			found.Messages = append(found.Messages, m)
		case "204": // the end of the batch
			pending := m.Header.Get("Nats-Num-Pending")
			found.left, _ = strconv.ParseUint(pending, 10, 64)
			if pending == "0" { // nothing was left out for its size
				found.Horizon, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
			}
			return found, nil
		case "404":
			return found, nil
		case "413":
			return found, ErrTooMany
		default:
			return found, fmt.Errorf("%w: %s %s", errUnexpected, status, m.Header.Get("Description"))
		}
	}
}

// Before returns the sequence after which a filter has n events, or all that it has if these are
// fewer, and how many it has there. A replica that lags knows of fewer events than the leader; then
// there are more than n.
func (h *History) Before(ctx context.Context, filter string, n int, s State) (
	seq uint64, found int, err error) {
	first := max(s.First, 1)
	// From low on there are more than n, unless it is 0; from end on, fewer.
	low, end := uint64(0), s.Last+1
	for width := uint64(n); end > first && end-low > 1; width *= 8 {
		at := end - min(width, end-first)
		if low > 0 {
			at = low + (end-low)/2
		}
		got, err := h.Get(ctx, GetRequest{Seq: at, Next: h.Subject(filter), Batch: 1})
		if err != nil {
			return 0, 0, err
		}
		switch count := uint64(len(got.Messages)) + got.left; {
		case count == uint64(n), count < uint64(n) && at == first:
			return at - 1, int(count), nil
		case count > uint64(n):
			low = at
		default:
			end = at
		}
	}
	if low == 0 {
		return first - 1, 0, nil
	}
	return max(low, first) - 1, n, nil
}

// A Stamp is when an event was stored.
type Stamp struct {
	Seq uint64
	At  time.Time
}

// Stamps returns when the events of a filter after a sequence were stored, at most n of them.
func (h *History) Stamps(ctx context.Context, filter string, after uint64, n int) (all []Stamp, err error) {
	for len(all) < n {
		r := GetRequest{Seq: after + 1, Next: h.Subject(filter), Batch: min(n-len(all), batchSize), MaxBytes: batchBytes}
		found, err := h.Get(ctx, r)
		if err != nil || len(found.Messages) == 0 {
			return all, err
		}
		for _, m := range found.Messages {
			seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			at, err2 := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
			if err != nil || err2 != nil {
				return nil, errUnexpected
			}
			all = append(all, Stamp{seq, at})
			after = seq
		}
	}
	return all, nil
}

// has reports whether the event with a sequence has the data. It does not know that of one that has
// left the stream, or that cannot be read now, and says yes.
func (h *History) has(ctx context.Context, seq uint64, data []byte) bool {
	if err := h.Acquire(ctx); err != nil {
		return true
	}
	defer h.Release()
	var answer struct {
		Error   *apiError
		Message struct{ Data []byte }
	}
	err := h.call(ctx, "STREAM.MSG.GET.", map[string]uint64{"seq": seq}, &answer)
	return err != nil || answer.Error != nil || bytes.Equal(answer.Message.Data, data)
}

// Stored makes an event of a message that a direct get has returned.
func (h *History) Stored(m *nats.Msg, epoch string) (*event.Event, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	topic, ok := strings.CutPrefix(m.Header.Get("Nats-Subject"), h.prefix)
	if err != nil || !ok {
		return nil, errUnexpected
	}
	return &event.Event{Topic: topic, Data: m.Data, At: event.Position{Epoch: epoch, Seq: seq}}, nil
}

// Replay calls visit for each event of a filter after a sequence, in order, at least up to the
// event with the sequence through, which must exist or have existed. It calls lost, in between, for
// each span in which the stream no longer has events; some of them may have been of the filter. It
// returns the sequence up to which it has come. If visit returns an error, replay ends with it.
//
// Retention may overtake a read at any time, also one that is under way. So replay asks what the
// stream's first event is after each batch that has not every sequence, and before it calls visit
// for what the batch has.
func (h *History) Replay(ctx context.Context, epoch, filter string, after, through uint64,
	visit func(*event.Event) error, lost func(event.Span)) (last uint64, err error) {
	wait := 5 * time.Millisecond
	for after < through {
		if ctx.Err() != nil {
			return after, context.Cause(ctx)
		}
		next := GetRequest{Seq: after + 1, Next: h.Subject(filter), Batch: batchSize, MaxBytes: batchBytes}
		found, err := h.Get(ctx, next)
		if err != nil {
			return after, err
		}
		events := make([]*event.Event, len(found.Messages))
		for i, m := range found.Messages {
			if events[i], err = h.Stored(m, epoch); err != nil {
				return after, err
			}
		}
		first := uint64(0)
		if n := len(events); n == 0 || events[n-1].At.Seq != after+uint64(n) {
			now, err := h.First(ctx)
			if err != nil {
				return after, err
			}
			if n > 0 && now.last < events[n-1].At.Seq {
				return after, ErrBehind // it was paused, and does not know of the next leader
			}
			first = now.First
		}
		for _, e := range events {
			if end := min(first, e.At.Seq); end > after+1 {
				lost(event.Span{After: after, Through: end - 1})
			}
			if err := visit(e); err != nil {
				return after, err
			}
			after = e.At.Seq
		}
		switch {
		case len(events) > 0:
			continue
		case first > through:
			lost(event.Span{After: after, Through: first - 1})
			return first - 1, nil
		}
		Sleep(ctx, wait) // the replica lags
		wait = min(2*wait, 200*time.Millisecond)
	}
	return after, nil
}

// Name returns the name of the stream.
func (h *History) Name() string { return h.name }

// Lead asks the leader to let another member lead the stream.
func (h *History) Lead(ctx context.Context, member string) error {
	var answer struct{ Error *apiError }
	request := map[string]any{"placement": map[string]string{"preferred": member}}
	if err := h.call(ctx, "STREAM.LEADER.STEPDOWN.", request, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%w: %s", errUnexpected, answer.Error.Description)
	}
	return nil
}
