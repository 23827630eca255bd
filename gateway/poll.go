package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/socknotify/socknotify/park"
)

// pollAnswer is the answer of a long poll. Last has a position for each topic of the request, in
// its order: the next request's parameters "after".
type pollAnswer struct {
	Events []envelope `json:"events"`
	Last   []string   `json:"last"`
	gapMessage
}

const (
	maxPollEvents = 1000
	maxPollBytes  = 1 << 20
)

// servePoll answers a long poll. What the client has missed, or what is stored if it has asked for
// that, is answered at once. Otherwise the request waits without a goroutine, until the next event,
// or for the time of a heartbeat.
func (g *Gateway) servePoll(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	c := &collector{answer: pollAnswer{Events: []envelope{}}, wants: a.wants}
	c.answer.add(a.gap)
	s := &subscriber{to: c}
	c.subscriber = s
	err := g.hub.join(ctx, s, a.wants)
	g.hub.leave(s)
	switch {
	case err != nil && !errors.Is(err, errCollected):
		g.unavailable(w, r, err)
		return
	case c.something(), a.stored:
		c.answer.Last = ids(a.wants)
		w.Write(encode(c.answer))
		return
	}
	p := &longPoll{wants: a.wants}
	p.to = p
	a.identify(&p.subscriber)
	register := func(q *park.Suspended) {
		p.request = q
		*a.kept = true
		g.polls.add(p)
		if err := g.hub.join(ctx, &p.subscriber, a.wants); err != nil {
			p.fail(err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joined = true
	}
	o := park.SuspendOptions{Timeout: max(g.config.Heartbeat, 0)}
	err = park.SuspendWith(w, r, o, register, func(w http.ResponseWriter, r *http.Request) {
		defer g.leave(p)
		b, err := p.finish()
		var f *denial
		switch {
		case errors.As(err, &f):
			g.refuse(w, r, f)
		case err != nil:
			g.unavailable(w, r, err)
		default:
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			w.Write(b)
		}
	})
	switch {
	case err == park.ErrMaxSuspended:
		g.unavailable(w, r, err)
	case err != nil:
		g.reject(w, r, http.StatusBadRequest, err.Error())
	}
}

// leave ends a long poll that waited.
func (g *Gateway) leave(p *longPoll) {
	g.hub.leave(&p.subscriber)
	g.hub.count.clients.Add(-1)
	g.polls.remove(p)
}

// A pollSet has the long polls that wait.
type pollSet struct {
	waiting sync.WaitGroup

	mu     sync.Mutex
	all    map[*longPoll]struct{}
	closed bool
}

// add adds a long poll. If the set is closed, it is answered at once.
func (s *pollSet) add(p *longPoll) {
	s.waiting.Add(1)
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
	s.waiting.Done()
}

// close has all long polls answered, and those that come.
func (s *pollSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range s.all {
		p.answer(0, nil)
	}
}

// A longPoll is a client that waits for the answer to its poll.
type longPoll struct {
	subscriber
	request *park.Suspended

	mu     sync.Mutex
	body   []byte // of the answer, or nil if there is none yet
	err    error  // instead of an answer
	wants  []want
	missed *gap
	joined bool
}

// answer makes the answer of the poll, with an event of one of its topics if e is not nil, and ends
// its wait.
func (p *longPoll) answer(topic int, e *event) {
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
func (p *longPoll) compose(topic int, e *event) {
	if p.body != nil {
		return
	}
	answer := pollAnswer{Events: []envelope{}}
	answer.add(p.missed)
	if p.joined { // the client must not come back with ids that are too old
		for i := range p.topics {
			if after, f := &p.wants[i].after, p.topics[i].feed; !f.live() {
				after.seq = max(after.seq, f.checked.Load())
			}
		}
	}
	if e != nil {
		answer.Events = append(answer.Events, e.envelope())
		advance(&p.wants[topic], e)
	}
	answer.Last = ids(p.wants)
	p.body = encode(answer)
}

// send implements sink.
func (p *longPoll) send(topic int, e *event) { p.answer(topic, e) }

// gap implements sink.
func (p *longPoll) gap(topic int, reason string, missed span) {
	p.mu.Lock()
	if p.body == nil {
		p.wants[topic].after.seq = missed.through
		p.missed = &gap{reason, []miss{p.missOf(topic, missed)}}
	}
	p.mu.Unlock()
	p.answer(0, nil)
}

// flush implements sink.
func (p *longPoll) flush(context.Context) error { return nil }

// end implements sink.
func (p *longPoll) end(_ *Gateway, reason error) {
	if errors.Is(reason, errKicked) {
		p.fail(&denial{status: http.StatusForbidden, text: "disconnected"})
		return
	}
	p.answer(0, nil)
}

// unsubscribed implements sink.
func (p *longPoll) unsubscribed(_ *Gateway, topic int) {
	p.fail(notAllowed(p.topics[topic].filter()))
}

// advance notes that the client has an event of the topic.
func advance(w *want, e *event) {
	if e.at.seq > 0 {
		w.after = e.at
	}
}

func ids(wants []want) []string {
	all := make([]string, len(wants))
	for i, w := range wants {
		all[i] = w.after.String()
	}
	return all
}

// A collector is a sink that keeps what a client has missed, for an answer of long polling. When it
// is full it takes nothing more, so that its positions stay at the last event that it has.
type collector struct {
	subscriber *subscriber
	mu         sync.Mutex
	wants      []want
	answer     pollAnswer
	bytes      int
}

var errCollected = errors.New("gateway: as much as one answer may have")

func (c *collector) send(topic int, e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return
	}
	c.bytes += len(e.data)
	c.answer.Events = append(c.answer.Events, e.envelope())
	advance(&c.wants[topic], e)
}

func (c *collector) gap(topic int, reason string, missed span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return
	}
	c.answer.add(&gap{reason, []miss{c.subscriber.missOf(topic, missed)}})
	c.wants[topic].after.seq = missed.through
}

func (c *collector) flush(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full() {
		return errCollected
	}
	return nil
}

func (c *collector) end(*Gateway, error)        {}
func (c *collector) unsubscribed(*Gateway, int) {}
func (c *collector) full() bool {
	return len(c.answer.Events) >= maxPollEvents || c.bytes >= maxPollBytes
}
func (c *collector) something() bool { return len(c.answer.Events) > 0 || c.answer.Gap != "" }
