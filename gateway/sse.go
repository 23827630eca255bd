package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// An eventStream is a client of Server-Sent Events, of package sse, which parks its connection and
// queues what it does not take.
type eventStream struct {
	subscriber
	conn *sse.Conn

	mu     sync.Mutex
	missed backlog
	form   form
	joined bool // what the client has missed was sent
}

func (g *Gateway) newEvents() *sse.Server {
	return &sse.Server{
		OnOpen:       g.openEvents,
		OnHeartbeat:  func(c *sse.Conn) { c.Value.(*eventStream).heartbeat() },
		OnClose:      func(c *sse.Conn, _ error) { g.left(&c.Value.(*eventStream).subscriber, "sse") },
		Heartbeat:    g.config.Heartbeat,
		Retry:        g.config.Retry,
		MaxQueued:    g.config.MaxQueued,
		SlowPolicy:   g.config.SlowPolicy,
		WriteTimeout: g.config.WriteTimeout,
		Lot:          g.lot,
		Name:         g.config.Name,
		Logger:       g.config.Logger,
	}
}

// left counts a client out, and tells the webhook.
func (g *Gateway) left(s *subscriber, transport string) {
	g.hub.leave(s)
	g.hub.count.clients.Add(-1)
	g.hooks.left(&g.hub.clients, s, transport)
}

// serveEvents answers a request for Server-Sent Events.
func (g *Gateway) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	w.Header().Set(clientHeader, g.hub.clients.name(a.id))
	if _, err := g.events.Open(w, r.WithContext(context.WithValue(ctx, askKey{}, a))); err != nil {
		g.hub.count.rejected.Add(1)
	}
}

// openEvents joins the hub, which delivers what the client has missed.
func (g *Gateway) openEvents(c *sse.Conn, r *http.Request, _ string) error {
	a := r.Context().Value(askKey{}).(ask)
	s := &eventStream{conn: c, form: a.form}
	s.to = s
	a.identify(&s.subscriber)
	c.Value = s
	*a.kept = true
	if durable(a.wants) { // a client that comes back before its first event has an id, too
		at := func(i int) uint64 { return a.wants[i].after.seq }
		b := appendPositions([]byte("id: "), g.hub.epoch, len(a.wants), at)
		b = append(b, '\n')
		if a.gap == nil {
			b = append(b, '\n')
		} else { // a client that has the id was told of the gap
			b = appendGap(b, *a.gap)
		}
		s.stream().WriteShared(b)
	}
	if err := g.hub.join(r.Context(), &s.subscriber, a.wants); err != nil {
		return err // the client comes back with its id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	return nil
}

func (s *eventStream) stream() *park.Stream { return (*park.Stream)(s.conn) }

// send implements sink.
func (s *eventStream) send(topic int, e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.missed == nil || s.tellMissed() // before the position is that of the event
	if e.at.seq > 0 {
		s.topics[topic].at = e.at.seq
	}
	err := park.ErrQueueFull
	switch {
	case !told:
	case len(s.topics) < 2 || e.at.seq == 0:
		err = s.stream().WriteShared(e.bytes(s.form))
	default:
		b := blocks.Get().(*[]byte)
		*b = append(s.appendID((*b)[:0]), e.body(s.form)...)
		err = s.stream().Write(*b)
		blocks.Put(b)
	}
	s.note(err, topic, e.alone())
}

// blocks holds buffers for events with a client's own id.
var blocks = sync.Pool{New: func() any { return new([]byte) }}

// gap implements sink.
func (s *eventStream) gap(topic int, reason string, missed span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.topics[topic].at
	*at = max(*at, missed.through)
	err := s.stream().WriteShared(s.withGap(gap{reason, []miss{s.missOf(topic, missed)}}))
	s.note(err, topic, missed)
}

// note notes that a client was not told of a span, if err says that it was dropped. The caller
// holds s.mu.
func (s *eventStream) note(err error, topic int, missed span) {
	if err == park.ErrQueueFull {
		s.missed.add(topic, missed)
	}
}

// tellMissed tells the client which events were dropped. It reports whether there was room for
// that. The caller holds s.mu.
func (s *eventStream) tellMissed() bool {
	told := s.stream().WriteShared(s.withGap(s.missed.gap(&s.subscriber))) == nil
	if told {
		s.missed = nil
	}
	return told
}

// heartbeat is called when nothing was sent for a time.
func (s *eventStream) heartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := heartbeat
	switch {
	case s.missed != nil:
		s.tellMissed()
		return
	case s.catchUp(): // a client whose topics are quiet must not come back with an id that is too old
		b = append(s.appendID(nil), '\n')
	}
	s.stream().WriteShared(b)
}

var heartbeat = []byte(":\n\n")

// flush implements sink.
func (s *eventStream) flush(ctx context.Context) error { return s.conn.Flush(ctx) }

// end implements sink. An EventSource comes back in any case, and is refused when its token is.
func (s *eventStream) end(g *Gateway, reason error) {
	if errors.Is(reason, errKicked) {
		s.tell("disconnected", struct{}{})
	}
	g.events.Dismiss(s.conn, reason)
}

// unsubscribed implements sink.
func (s *eventStream) unsubscribed(_ *Gateway, topic int) {
	s.tell("unsubscribed", unsubscribedMessage{s.topics[topic].filter()})
}

// tell sends an event of the gateway's own.
func (s *eventStream) tell(name string, data any) {
	// JSON has no line breaks, so it can be appended.
	b, _ := sse.Append(nil, sse.Event{Name: name, Data: string(encode(data))})
	s.stream().WriteShared(b)
}

// appendID appends the line with the client's id. The caller holds s.mu.
func (s *eventStream) appendID(b []byte) []byte {
	s.catchUp()
	at := func(i int) uint64 { return s.topics[i].at }
	b = appendPositions(append(b, "id: "...), s.topics[0].hub.epoch, len(s.topics), at)
	return append(b, '\n')
}

// catchUp moves the position of each topic up to where its feed has no further event. It reports
// whether one has moved. The caller holds s.mu.
//
// A feed gives an event to its members before it says so in checked. So what checked covers was
// written before, or is in the queue before, the id that is made of it.
func (s *eventStream) catchUp() (moved bool) {
	if !s.joined { // events of the history are still missing
		return false
	}
	for i := range s.topics {
		t := &s.topics[i]
		if checked := t.checked.Load(); !t.live() && checked > t.at {
			t.at, moved = checked, true
		}
	}
	return moved
}

// withGap returns the block of a gap, with the id of a client that was told of it. The caller holds
// s.mu.
func (s *eventStream) withGap(g gap) (b []byte) {
	for i := range s.topics {
		if !s.topics[i].live() {
			b = s.appendID(b)
			break
		}
	}
	return appendGap(b, g)
}

func appendGap(b []byte, g gap) []byte {
	b, _ = sse.Append(b, sse.Event{Name: "gap", Data: string(encode(g))}) // JSON has no line breaks
	return b
}
