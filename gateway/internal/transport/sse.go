package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/sse"
)

// An eventStream is a client of Server-Sent Events, of package sse, which parks its connection and
// queues what it does not take.
type eventStream struct {
	hub.Subscriber
	conn *sse.Conn

	mu     sync.Mutex
	rare   *rare
	form   event.Form
	joined bool // what the client has missed was sent
}

// rare is what few clients have.
type rare struct {
	missed backlog
	wide   map[int]event.Position // by topic, where it has several shards
}

// missed returns the events that were dropped, or nil.
func (s *eventStream) missed() backlog {
	if s.rare == nil {
		return nil
	}
	return s.rare.missed
}

// more returns what few clients have.
func (s *eventStream) more() *rare {
	if s.rare == nil {
		s.rare = new(rare)
	}
	return s.rare
}

// position returns the position of a topic. The caller holds s.mu, and the client has its topics.
func (s *eventStream) position(topic int) event.Position {
	if s.rare != nil {
		if at, ok := s.rare.wide[topic]; ok {
			return at
		}
	}
	t := &s.Topics[topic]
	return event.Position{Epoch: t.Hub.Epoch, Seq: t.At}
}

// move sets the position of a topic. The caller holds s.mu, or is the only one that knows of s.
func (s *eventStream) move(topic int, at event.Position) {
	if at.Others == nil {
		if s.rare != nil {
			delete(s.rare.wide, topic)
		}
		s.Topics[topic].At = at.Seq
		return
	}
	if s.more().wide == nil {
		s.rare.wide = make(map[int]event.Position)
	}
	s.rare.wide[topic] = at
}

func (t *Server) NewEvents() *sse.Server {
	return &sse.Server{
		OnOpen:       t.openEvents,
		OnHeartbeat:  func(c *sse.Conn) { c.Value.(*eventStream).heartbeat() },
		OnClose:      func(c *sse.Conn, _ error) { t.left(&c.Value.(*eventStream).Subscriber, "sse") },
		Heartbeat:    t.Config.Heartbeat,
		Retry:        t.Config.Retry,
		MaxQueued:    t.Config.MaxQueued,
		SlowPolicy:   t.Config.SlowPolicy,
		WriteTimeout: t.Config.WriteTimeout,
		Lot:          t.Config.Lot,
		Name:         t.Config.Name,
		Logger:       t.Config.Logger,
	}
}

// serveEvents answers a request for Server-Sent Events.
func (t *Server) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, a access.Ask) {
	w.Header().Set(access.ClientHeader, t.Hub.Clients.Name(a.ID))
	if _, err := t.Events.Open(w, a.With(ctx, r)); err != nil {
		t.Access.Rejected.Add(1)
	}
}

// openEvents joins the hub, which delivers what the client has missed.
func (t *Server) openEvents(c *sse.Conn, r *http.Request, _ string) error {
	a := access.AskOf(r)
	s := &eventStream{conn: c, form: a.Form}
	s.To = s
	a.Identify(&s.Subscriber)
	c.Value = s
	*a.Kept = true
	for i, w := range a.Wants {
		if w.After.Others != nil {
			s.move(i, w.After)
		}
	}
	if hub.Durable(a.Wants) { // a client that comes back before its first event has an id, too
		at := func(i int) event.Position { return a.Wants[i].After }
		b := event.AppendPositions([]byte("id: "), t.Hub.Epoch, len(a.Wants), at)
		b = append(b, '\n')
		if a.Gap == nil {
			b = append(b, '\n')
		} else { // a client that has the id was told of the gap
			b = appendGap(b, *a.Gap)
		}
		s.stream().WriteShared(b)
	}
	if err := t.Hub.Join(r.Context(), &s.Subscriber, a.Wants); err != nil {
		return err // the client comes back with its id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	return nil
}

func (s *eventStream) stream() *stream.Stream { return (*stream.Stream)(s.conn) }

// queued and way implement queue.
func (s *eventStream) queued() int { return s.stream().Queued() }
func (s *eventStream) way() string { return "sse" }

// Send implements sink.
func (s *eventStream) Send(topic int, e *event.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.missed() == nil || s.tellMissed() // before the position is that of the event
	switch {
	case e.At.Seq == 0:
	case e.Wide == nil && s.rare == nil:
		s.Topics[topic].At = e.At.Seq
	default:
		s.move(topic, e.Position())
	}
	err := stream.ErrQueueFull
	switch {
	case !told:
	case len(s.Topics) < 2 || e.At.Seq == 0:
		err = s.stream().WriteShared(e.Bytes(s.form))
	default:
		b := blocks.Get().(*[]byte)
		*b = append(s.appendID((*b)[:0]), e.Body(s.form)...)
		err = s.stream().Write(*b)
		blocks.Put(b)
	}
	s.note(err, topic, e.Alone())
	return true
}

// blocks holds buffers for events with a client's own id.
var blocks = sync.Pool{New: func() any { return new([]byte) }}

// Gap implements sink.
func (s *eventStream) Gap(topic int, reason string, missed event.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if missed.Wide != nil {
		s.move(topic, missed.Wide.Through)
	} else {
		at := s.position(topic)
		s.move(topic, at.With(0, max(at.Seq, missed.Through)))
	}
	err := s.stream().WriteShared(s.withGap(event.Gap{Reason: reason, Missed: []event.Miss{s.MissOf(topic, missed)}}))
	s.note(err, topic, missed)
}

// note notes that a client was not told of a span, if err says that it was dropped. The caller
// holds s.mu.
func (s *eventStream) note(err error, topic int, missed event.Span) {
	if err == stream.ErrQueueFull {
		s.more().missed.add(topic, missed)
	}
}

// tellMissed tells the client which events were dropped. It reports whether there was room for
// that. The caller holds s.mu.
func (s *eventStream) tellMissed() bool {
	told := s.stream().WriteShared(s.withGap(s.rare.missed.gap(&s.Subscriber))) == nil
	if told {
		s.rare.missed = nil
	}
	return told
}

// heartbeat is called when nothing was sent for a time.
func (s *eventStream) heartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := heartbeat
	switch {
	case s.missed() != nil:
		s.tellMissed()
		return
	case s.catchUp(): // a client whose topics are quiet must not come back with an id that is too old
		b = append(s.appendID(nil), '\n')
	}
	s.stream().WriteShared(b)
}

var heartbeat = []byte(":\n\n")

// give implements trunk. The id of the stream stays that of the topics of its request.
func (s *eventStream) give(e *event.Event, filter string) error {
	return s.stream().WriteShared(e.Tagged(filter))
}

// tell implements trunk.
func (s *eventStream) tell(g event.Gap) error { return s.stream().WriteShared(appendGap(nil, g)) }

func (s *eventStream) hasJoined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined
}

// Flush implements sink.
func (s *eventStream) Flush(ctx context.Context) error { return s.conn.Flush(ctx) }

// End implements known. An EventSource comes back in any case, and is refused when its token is.
func (s *eventStream) End(t *Server, reason error) {
	if errors.Is(reason, access.ErrKicked) {
		s.say("disconnected", struct{}{})
	}
	t.Events.Dismiss(s.conn, reason)
}

// Unsubscribed implements known.
func (s *eventStream) Unsubscribed(_ *Server, filter string) {
	s.say("unsubscribed", unsubscribedMessage{filter})
}

// say sends an event of the gateway's own.
func (s *eventStream) say(name string, data any) {
	// JSON has no line breaks, so it can be appended.
	b, _ := sse.Append(nil, sse.Event{Name: name, Data: string(event.Encode(data))})
	s.stream().WriteShared(b)
}

// appendID appends the line with the client's id. The caller holds s.mu.
func (s *eventStream) appendID(b []byte) []byte {
	s.catchUp()
	b = event.AppendPositions(append(b, "id: "...), s.Topics[0].Hub.Epoch, len(s.Topics), s.position)
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
	for i := range s.Topics {
		if at, further := s.Topics[i].Advance(s.position(i)); further {
			s.move(i, at)
			moved = true
		}
	}
	return moved
}

// withGap returns the block of a gap, with the id of a client that was told of it. The caller holds
// s.mu.
func (s *eventStream) withGap(g event.Gap) (b []byte) {
	for i := range s.Topics {
		if !s.Topics[i].Live() {
			b = s.appendID(b)
			break
		}
	}
	return appendGap(b, g)
}

func appendGap(b []byte, g event.Gap) []byte {
	b, _ = sse.Append(b, sse.Event{Name: "gap", Data: string(event.Encode(g))}) // JSON has no line breaks
	return b
}
