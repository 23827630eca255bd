package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

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

// servePoll answers a long poll. What the client has missed is answered at once, and the connection
// kept. If that is nothing, the connection is taken over and parked, until the next event, or for
// the time of a heartbeat.
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
	p := &longPoll{wants: a.wants}
	p.to, p.expires, p.stream.Value = p, a.expires, p
	received, err := g.polls.OpenHTTP(&p.stream, w)
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\n")
	header.Write(&head)
	p.head = head.Bytes()
	*a.kept = true
	p.stream.Start(received, func(*park.Stream) error {
		if err := g.hub.join(ctx, &p.subscriber, a.wants); err != nil {
			return err // the client comes back with its ids
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joined = true
		return nil
	})
}

// A longPoll is a client that waits for the answer to its poll. Its connection is parked.
type longPoll struct {
	subscriber
	stream park.Stream // its Value is the longPoll

	mu     sync.Mutex
	head   []byte // of the answer, without its length; nil when it was answered
	wants  []want
	missed *gap
	joined bool
}

func (g *Gateway) newPolls() *park.Streams {
	return &park.Streams{
		OnTimer: func(s *park.Stream) time.Duration {
			left := g.config.Heartbeat - s.Idle()
			if g.config.Heartbeat > 0 && left <= 0 {
				s.Value.(*longPoll).answer(0, nil)
			}
			return left
		},
		OnShutdown: func(s *park.Stream) { s.Value.(*longPoll).answer(0, nil) },
		OnClose: func(s *park.Stream, _ error) {
			g.hub.leave(&s.Value.(*longPoll).subscriber)
			g.hub.count.clients.Add(-1)
		},
		WriteTimeout: g.config.WriteTimeout,
		Lot:          g.lot,
		Name:         g.config.Name,
		Logger:       g.config.Logger,
	}
}

// answer answers the poll, with an event of one of its topics if e is not nil, and lets the
// connection end.
func (p *longPoll) answer(topic int, e *event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head == nil {
		return
	}
	answer := pollAnswer{Events: []envelope{}}
	answer.add(p.missed)
	if p.joined { // the client must not come back with ids that are too old
		for i := range p.topics {
			if after, f := &p.wants[i].after, p.topics[i].feed; !f.live {
				after.seq = max(after.seq, f.checked.Load())
			}
		}
	}
	if e != nil {
		answer.Events = append(answer.Events, e.envelope())
		advance(&p.wants[topic], e)
	}
	answer.Last = ids(p.wants)
	body := encode(answer)
	b := append(p.head, "Content-Length: "...)
	b = append(strconv.AppendInt(b, int64(len(body)), 10), "\r\n\r\n"...)
	p.head = nil
	p.stream.WriteLast(append(b, body...), nil)
	p.stream.Close(nil)
}

// send implements sink.
func (p *longPoll) send(topic int, e *event) { p.answer(topic, e) }

// gap implements sink.
func (p *longPoll) gap(topic int, reason string, missed span) {
	p.mu.Lock()
	if p.head != nil {
		p.wants[topic].after.seq = missed.through
		p.missed = &gap{reason, []miss{p.missOf(topic, missed)}}
	}
	p.mu.Unlock()
	p.answer(0, nil)
}

// flush implements sink.
func (p *longPoll) flush(context.Context) error { return nil }

// end implements sink.
func (p *longPoll) end(*Gateway, error) { p.answer(0, nil) }

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

func (c *collector) end(*Gateway, error) {}
func (c *collector) full() bool {
	return len(c.answer.Events) >= maxPollEvents || c.bytes >= maxPollBytes
}
func (c *collector) something() bool { return len(c.answer.Events) > 0 || c.answer.Gap != "" }
