package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
)

// pollAnswer is the answer of a long poll. Last has a position for each topic of the request, in its order: the next
// request's parameters "after".
type pollAnswer struct {
	Events []envelope `json:"events"`
	Last   []string   `json:"last"`
	gapMessage
}

const (
	maxPollEvents = 1000
	maxPollBytes  = 1 << 20
)

// servePoll answers a long poll. What the client has missed is answered at once, and the connection kept. If that is
// nothing, the connection is taken over and parked, until the next event, or for the time of a heartbeat.
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
	case c.something(), r.ProtoMajor != 1:
		c.answer.Last = ids(a.wants)
		w.Write(encode(c.answer))
		return
	}
	p, head := g.takeOver(w, a, formJSON)
	if p == nil {
		return
	}
	p.poll = &pollState{head: head, wants: a.wants}
	g.open(ctx, p, a.wants)
}

// A pollState is what a stream knows of its long poll.
type pollState struct {
	head  []byte // of the answer, without its length
	wants []want
	gap   *gap
}

// finishPoll answers a long poll, with an event of one of its topics if e is not nil, and lets the connection end. The
// caller holds s.mu.
func (s *stream) finishPoll(topic int, e *event) {
	answer := pollAnswer{Events: []envelope{}}
	answer.add(s.poll.gap)
	if s.joined { // the client must not come back with ids that are too old
		for i := range s.topics {
			if after, f := &s.poll.wants[i].after, s.topics[i].feed; !f.live {
				after.seq = max(after.seq, f.checked.Load())
			}
		}
	}
	if e != nil {
		answer.Events = append(answer.Events, e.envelope())
		advance(&s.poll.wants[topic], e)
	}
	answer.Last = ids(s.poll.wants)
	body := encode(answer)
	b := append(s.poll.head, "Content-Length: "...)
	b = append(strconv.AppendInt(b, int64(len(body)), 10), "\r\n\r\n"...)
	s.write(append(b, body...))
	s.last = true
	s.wake()
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

// A collector is a sink that keeps what a client has missed, for an answer of long polling. When it is full it takes nothing
// more, so that its positions stay at the last event that it has.
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

func (c *collector) end(error) {}
func (c *collector) full() bool {
	return len(c.answer.Events) >= maxPollEvents || c.bytes >= maxPollBytes
}
func (c *collector) something() bool { return len(c.answer.Events) > 0 || c.answer.Gap != "" }
