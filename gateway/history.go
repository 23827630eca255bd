package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A history reads the stream of the durable topics.
//
// Batches and last sequences are read by direct get, which any replica answers. A replica may lag behind the leader, but
// what it has is a beginning of the stream: if an answer has an event, it has every earlier one of its filter. So a reader
// that knows the sequence of an event can tell when it has everything up to that event, and asks again until it has.
type history struct {
	conn *nats.Conn
	name string          // of the stream
	ctx  context.Context // ends requests that are under way
	work *sync.WaitGroup // counts the goroutine of ask
	// slots bounds the requests under way that read events. When a node dies, thousands of clients come back to the others at
	// once; without a bound, their reads keep the stream's locks and the connection's goroutine in the leader busy, and
	// publishers get no acknowledgement until all are done.
	slots chan struct{}

	mu     sync.Mutex
	asking bool
	next   *stateCall // the call that has not begun

	previous streamState // the last answer
}

// A streamState is what the leader says of the stream.
type streamState struct {
	epoch       string
	first, last uint64
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

type stateCall struct {
	done  chan struct{}
	state streamState
	err   error
}

const (
	maxReads       = 8 // under way; more only wait for each other in the server
	requestTimeout = 5 * time.Second
	batchSize      = 256
	batchBytes     = 1 << 20
)

var (
	errNoStream   = errors.New("gateway: the stream cannot be read")
	errTooMany    = errors.New("gateway: too many topics for one answer")
	errUnexpected = errors.New("gateway: unexpected answer of JetStream")
)

// state asks the leader for the state of the stream. The answer is newer than the call. Calls that come while one is under
// way share the one after it, so that a thousand clients that connect at once cost two requests.
func (h *history) state(ctx context.Context) (streamState, error) {
	h.mu.Lock()
	c := h.next
	if c == nil {
		c = &stateCall{done: make(chan struct{})}
		h.next = c
		if !h.asking {
			h.asking = true
			h.work.Go(h.ask)
		}
	}
	h.mu.Unlock()
	select {
	case <-c.done:
		return c.state, c.err
	case <-ctx.Done():
		return streamState{}, context.Cause(ctx)
	}
}

// ask serves calls of state until there is none.
func (h *history) ask() {
	for {
		h.mu.Lock()
		c := h.next
		h.next = nil
		if c == nil {
			h.asking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		c.state, c.err = h.askState()
		h.mu.Lock()
		if p := &h.previous; c.err == nil {
			if c.state.since = p.since; c.state.leader() != p.leader() || c.state.last < p.last || p.since.IsZero() {
				c.state.since = time.Now()
			}
			*p = c.state
		} else {
			p.since = time.Time{}
		}
		h.mu.Unlock()
		close(c.done)
	}
}

func (h *history) askState() (s streamState, err error) {
	var answer struct {
		Error  *apiError
		Config struct{ Metadata map[string]string }
		State  struct {
			First uint64 `json:"first_seq"`
			Last  uint64 `json:"last_seq"`
		}
		Cluster struct {
			Leader   string
			Replicas []Member
		}
	}
	if err := h.call("STREAM.INFO.", nil, &answer); err != nil {
		return s, err
	}
	if answer.Error != nil {
		return s, fmt.Errorf("%w: %s", errNoStream, answer.Error.Description)
	}
	members := answer.Cluster.Replicas
	if name := answer.Cluster.Leader; name != "" {
		members = append([]Member{{Name: name, Leader: true, Current: true}}, members...)
	}
	return streamState{epoch: answer.Config.Metadata[epochKey], first: answer.State.First, last: answer.State.Last,
		members: members}, nil
}

type apiError struct {
	Code        int
	Description string
}

// call makes one request of JetStream's API, which the leader of the stream answers.
func (h *history) call(what string, request, answer any) error {
	var body []byte
	if request != nil {
		body = encode(request)
	}
	return callAPI(h.ctx, h.conn, "$JS.API."+what+h.name, body, answer)
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
	var answer struct {
		Error   *apiError
		Message struct{ Seq uint64 }
	}
	err := h.call("STREAM.MSG.GET.", map[string]string{"last_by_subj": storedPrefix + filter}, &answer)
	switch {
	case err != nil:
		return 0, err
	case answer.Error != nil && answer.Error.Code == 404:
		return 0, nil
	case answer.Error != nil:
		return 0, fmt.Errorf("%w: %s", errNoStream, answer.Error.Description)
	}
	return answer.Message.Seq, nil
}

// A getRequest is a direct get.
type getRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	Next      string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// get makes a direct get and returns the messages, and the horizon of the answer: the replica's last sequence, where it says
// so, or 0.
func (h *history) get(ctx context.Context, r getRequest) (found []*nats.Msg, horizon uint64, err error) {
	if err := h.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer h.release()
	inbox := h.conn.NewInbox()
	sub, err := h.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errNoStream, err)
	}
	defer sub.Unsubscribe()
	if err := h.conn.PublishRequest("$JS.API.DIRECT.GET."+h.name, inbox, encode(r)); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errNoStream, err)
	}
	for {
		ctx, cancel := context.WithTimeout(h.ctx, requestTimeout)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errNoStream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			found = append(found, m)
		case "204": // the end of the batch
			if m.Header.Get("Nats-Num-Pending") == "0" { // nothing was left out for its size
				horizon, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
			}
			return found, horizon, nil
		case "404":
			return found, 0, nil
		case "413":
			return nil, 0, errTooMany
		default:
			return nil, 0, fmt.Errorf("%w: %s %s", errUnexpected, status, m.Header.Get("Description"))
		}
	}
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

// replay calls f for each event of a filter after a sequence, in order, at least up to the event with the sequence through,
// which must exist or have existed. It returns the sequence of the last one. lost reports that the stream no longer has the
// event through. If f returns an error, replay ends with it.
func (h *history) replay(ctx context.Context, epoch, filter string, after, through uint64, f func(*event) error) (
	last uint64, lost bool, err error) {
	wait := 5 * time.Millisecond
	for after < through {
		if ctx.Err() != nil {
			return after, false, context.Cause(ctx)
		}
		next := getRequest{Seq: after + 1, Next: storedPrefix + filter, Batch: batchSize, MaxBytes: batchBytes}
		found, _, err := h.get(ctx, next)
		if err != nil {
			return after, false, err
		}
		for _, m := range found {
			e, err := stored(m, epoch)
			if err == nil {
				err = f(e)
			}
			if err != nil {
				return after, false, err
			}
			after = e.at.seq
		}
		if len(found) > 0 || after >= through {
			continue
		}
		s, err := h.state(ctx)
		switch {
		case err != nil:
			return after, false, err
		case s.first > through:
			return through, true, nil
		}
		select { // the replica lags
		case <-time.After(wait):
			wait = min(2*wait, 200*time.Millisecond)
		case <-ctx.Done():
		}
	}
	return after, false, nil
}
