package transport

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/park"
)

// pollAnswer is the answer of a long poll. Last has a position for each topic of the request, in
// its order: the next request's parameters "after".
type pollAnswer struct {
	Events []event.Envelope `json:"events"`
	Last   []string         `json:"last"`
	gapMessage
}

const (
	maxPollEvents = 1000
	maxPollBytes  = 1 << 20
)

// servePoll answers a long poll. What the client has missed, or what is stored if it has asked for
// that, is answered at once. Otherwise the request waits without a goroutine, until the next event,
// or for the time of a heartbeat.
func (t *Server) servePoll(ctx context.Context, w http.ResponseWriter, r *http.Request, a access.Ask) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	c := &collector{answer: pollAnswer{Events: []event.Envelope{}}, wants: a.Wants}
	c.answer.add(a.Gap)
	s := &hub.Subscriber{To: c}
	c.subscriber = s
	err := t.Hub.Join(ctx, s, a.Wants)
	t.Hub.Leave(s)
	switch {
	case err != nil && !errors.Is(err, errCollected):
		t.Access.Unavailable(w, r, err)
		return
	case c.something(), a.Stored:
		c.answer.Last = ids(a.Wants)
		w.Write(event.Encode(c.answer))
		return
	}
	p := &longPoll{wants: a.Wants}
	p.To = p
	a.Identify(&p.Subscriber)
	register := func(q *park.Suspended) {
		p.request = q
		*a.Kept = true
		t.Polls.add(p)
		if err := t.Hub.Join(ctx, &p.Subscriber, a.Wants); err != nil {
			p.fail(err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joined = true
	}
	o := park.SuspendOptions{Timeout: max(t.Config.Heartbeat, 0)}
	err = park.SuspendWith(w, r, o, register, func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) {
		defer t.leave(p)
		b, err := p.finish()
		var f *access.Denial
		switch {
		case errors.As(err, &f):
			t.Access.Refuse(w, r, f)
		case err != nil:
			t.Access.Unavailable(w, r, err)
		default:
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			w.Write(b)
		}
	})
	switch {
	case err == park.ErrMaxSuspended:
		t.Access.Unavailable(w, r, err)
	case err != nil:
		t.Access.Reject(w, r, http.StatusBadRequest, err.Error())
	}
}

// leave ends a long poll that waited.
func (t *Server) leave(p *longPoll) {
	t.Hub.Leave(&p.Subscriber)
	t.Access.Gone(p.ID)
	t.Polls.remove(p)
}

// A pollSet has the long polls that wait.
type pollSet struct {
	Waiting sync.WaitGroup

	mu     sync.Mutex
	all    map[*longPoll]struct{}
	closed bool
}

// add adds a long poll. If the set is closed, it is answered at once.
func (s *pollSet) add(p *longPoll) {
	s.Waiting.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*longPoll]struct{})
	}
	s.all[p] = struct{}{}
	if s.closed {
		p.answer(0, nil)
	}
}

func (s *pollSet) remove(p *longPoll) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, p)
	s.Waiting.Done()
}

// Close has all long polls answered, and those that come.
func (s *pollSet) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range s.all {
		p.answer(0, nil)
	}
}

// A longPoll is a client that waits for the answer to its poll.
type longPoll struct {
	hub.Subscriber
	request *park.Suspended

	mu     sync.Mutex
	body   []byte // of the answer, or nil if there is none yet
	err    error  // instead of an answer
	wants  []hub.Want
	missed *event.Gap
	joined bool
}

// answer makes the answer of the poll, with an event of one of its topics if e is not nil, and ends
// its wait.
func (p *longPoll) answer(topic int, e *event.Event) {
	p.mu.Lock()
	p.compose(topic, e)
	p.mu.Unlock()
	p.request.Resume()
}

// fail ends the wait with an error.
func (p *longPoll) fail(err error) {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	p.request.Resume()
}

// finish returns the answer, which is without an event if there is none yet, or the error.
func (p *longPoll) finish() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.compose(0, nil)
	return p.body, p.err
}

// compose makes the answer. The first call counts: an event that comes after it is not covered by
// the positions of the answer. The caller holds p.mu.
func (p *longPoll) compose(topic int, e *event.Event) {
	if p.body != nil {
		return
	}
	answer := pollAnswer{Events: []event.Envelope{}}
	answer.add(p.missed)
	if p.joined { // the client must not come back with ids that are too old
		for i := range p.Topics {
			after := &p.wants[i].After
			*after, _ = p.Topics[i].Advance(*after)
		}
	}
	if e != nil {
		answer.Events = append(answer.Events, e.Envelope())
		advance(&p.wants[topic], e)
	}
	answer.Last = ids(p.wants)
	p.body = event.Encode(answer)
}

// Send implements sink.
func (p *longPoll) Send(topic int, e *event.Event) bool {
	p.answer(topic, e)
	return true
}

// Visits says that the client is gone after each event, so that it is not present on its topics.
func (p *longPoll) Visits() {}

// Gap implements sink.
func (p *longPoll) Gap(topic int, reason string, missed event.Span) {
	p.mu.Lock()
	if p.body == nil {
		_, p.wants[topic].After = missed.Positions(p.Topics[topic].Hub.Epoch)
		p.missed = &event.Gap{Reason: reason, Missed: []event.Miss{p.MissOf(topic, missed)}}
	}
	p.mu.Unlock()
	p.answer(0, nil)
}

// Flush implements sink.
func (p *longPoll) Flush(context.Context) error { return nil }

// End implements known.
func (p *longPoll) End(_ *Server, reason error) {
	if errors.Is(reason, access.ErrKicked) {
		p.fail(&access.Denial{Status: http.StatusForbidden, Text: "disconnected"})
		return
	}
	p.answer(0, nil)
}

// Unsubscribed implements known.
func (p *longPoll) Unsubscribed(_ *Server, filter string) {
	p.fail(access.NotAllowed(filter))
}

// advance notes that the client has an event of the topic.
func advance(w *hub.Want, e *event.Event) {
	if e.At.Seq > 0 {
		w.After = e.Position()
	}
}

func ids(wants []hub.Want) []string {
	all := make([]string, len(wants))
	for i, w := range wants {
		all[i] = w.After.String()
	}
	return all
}

// A collector is a sink that keeps what a client has missed, for an answer of long polling. When it
// is full it takes nothing more, so that its positions stay at the last event that it has.
type collector struct {
	subscriber *hub.Subscriber
	mu         sync.Mutex
	wants      []hub.Want
	answer     pollAnswer
	bytes      int
}

var errCollected = errors.New("gateway: as much as one answer may have")

func (c *collector) Send(topic int, e *event.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return true
	}
	c.bytes += len(e.Data)
	c.answer.Events = append(c.answer.Events, e.Envelope())
	advance(&c.wants[topic], e)
	return true
}

func (c *collector) Gap(topic int, reason string, missed event.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return
	}
	c.answer.add(&event.Gap{Reason: reason, Missed: []event.Miss{c.subscriber.MissOf(topic, missed)}})
	_, c.wants[topic].After = missed.Positions(c.subscriber.Topics[topic].Hub.Epoch)
}

func (c *collector) Flush(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return errCollected
	}
	return nil
}

func (c *collector) full() bool {
	return len(c.answer.Events) >= maxPollEvents || c.bytes >= maxPollBytes
}
func (c *collector) something() bool { return len(c.answer.Events) > 0 || c.answer.Gap != "" }
