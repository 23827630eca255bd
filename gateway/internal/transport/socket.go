package transport

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	streams "github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
	"github.com/socknotify/socknotify/websocket"
)

// A socket is a client of package websocket, which parks its connection, pings it, and queues what it does not take.
type socket struct {
	hub.Subscriber
	t      *Server
	conn   *websocket.Conn
	client string // for the limits
	rights *access.Rights
	owes   atomic.Bool // owed is not nil
	silent bool        // the client may not publish
	owed   *owed       // guarded by transports.slow, because events of several topics may come at once
}

// An owed is what a client must be told before the next event.
type owed struct {
	greeting []byte  // nil if it was sent
	lost     backlog // nil if nothing was dropped
}

// greeting is the first message to a WebSocket. Last has a position for each topic, in the order of the request: a client
// that comes back without having got an event asks for what is after these. Client is the id of the
// connection, and ExpiresIn the seconds after which its token expires, or 0.
type greeting struct {
	Client    string   `json:"client"`
	Last      []string `json:"last"`
	ExpiresIn int64    `json:"expires_in"`
	gapMessage
}

// unsubscribedMessage tells a client that it gets no further events of a topic.
type unsubscribedMessage struct {
	Unsubscribed string `json:"unsubscribed"`
}

// A gapMessage is a gap in a message that may have something else.
type gapMessage struct {
	Gap    string       `json:"gap,omitempty"`
	Missed []event.Miss `json:"missed,omitempty"`
}

// add adds a gap, unless it is nil.
func (m *gapMessage) add(g *event.Gap) {
	if g == nil {
		return
	}
	if m.Gap != event.GapEpoch {
		m.Gap = g.Reason
	}
	m.Missed = append(m.Missed, g.Missed...)
}

// maxHead bounds the bytes of a client of Server-Sent Events, which has no reason to send any, and
// of a message of a WebSocket beside its event.
const maxHead = 4 << 10

// socketPath is the path of WebSockets.
const socketPath = "/socket"

// maxPings bounds the pings and pongs of a client in a second. One that sends as many as it can
// would keep a processor busy.
const maxPings = 20

func (t *Server) newSockets() *websocket.Server {
	return &websocket.Server{
		OnOpen:    t.openSocket,
		OnMessage: t.serveMessage,
		OnClose: func(c *websocket.Conn, _ error) {
			if s, ok := c.Value.(*socket); ok {
				t.left(&s.Subscriber, "websocket")
			}
		},
		CheckOrigin: func(r *http.Request) bool {
			return websocket.SameOrigin(r) || access.AllowsOrigin(t.Access.Config.Origins, r.Header.Get("Origin"))
		},
		MaxMessage:   2*t.Access.Config.MaxMessage + maxHead, // JSON is longer than the event
		MaxPings:     maxPings,
		MaxQueued:    t.Config.MaxQueued,
		SlowPolicy:   t.Config.SlowPolicy,
		Compression:  t.Config.Compression,
		CompressMin:  t.Config.CompressMin,
		WriteTimeout: t.Config.WriteTimeout,
		PingInterval: t.Config.Heartbeat,
		PongTimeout:  t.Config.WriteTimeout,
		Name:         t.Config.Name,
		Logger:       t.Config.Logger,
	}
}

// serveSocket answers a request for a WebSocket.
func (t *Server) serveSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, a access.Ask) {
	if _, err := t.Sockets.Upgrade(w, a.With(ctx, r)); err != nil {
		t.Access.Rejected.Add(1)
	}
}

var errComeBack = &websocket.CloseError{Code: websocket.CodeTryAgainLater,
	Reason: "come back with the last id"}

// openSocket joins the hub.
func (t *Server) openSocket(c *websocket.Conn, r *http.Request) error {
	a := access.AskOf(r)
	s := &socket{t: t, conn: c, client: a.Client, rights: a.Rights, silent: a.Silent}
	s.To = s
	a.Identify(&s.Subscriber)
	c.Value = s
	*a.Kept = true
	first := greeting{Client: t.Hub.Clients.Name(s.ID), Last: ids(a.Wants), ExpiresIn: expiresIn(a.Expires)}
	first.add(a.Gap)
	if b := event.Encode(first); slices.ContainsFunc(a.Wants, hub.Want.Live) {
		// Events of a live topic have no positions, so a client that was greeted must get all that come.
		s.owed = &owed{greeting: b}
		s.owes.Store(true)
	} else {
		c.Write(websocket.Text, b) // if it fails, OnClose is called
	}
	if t.Hub.Join(r.Context(), &s.Subscriber, a.Wants) != nil {
		return errComeBack
	}
	s.pay()
	return nil
}

// A socketRequest is a message of a client: an event to publish, or a change. Ref is a number that
// the client chooses, and that the answer has.
type socketRequest struct {
	Ref     uint64       `json:"ref"`
	Publish *publication `json:"publish"`
	change
}

// A socketAnswer is the answer to a socketRequest: Error, or what was asked for.
type socketAnswer struct {
	Ref       uint64          `json:"ref"`
	Published *stream.Receipt `json:"published,omitempty"`
	changed
	Error *socketError `json:"error,omitempty"`
}

// A socketError says why something was refused.
type socketError struct {
	Status int    `json:"status"` // as that of HTTP
	Text   string `json:"text"`
	Retry  int64  `json:"retry,omitempty"` // milliseconds before the next attempt
}

// serveMessage does what a client asks for, and answers with the result or with why not.
func (t *Server) serveMessage(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
	s := c.Value.(*socket)
	if s.HasExpired(time.Now().Unix()) {
		s.End(t, access.ErrExpired)
		return nil
	}
	if t.Access.Messages.Take(s.client) > 0 {
		t.Access.Count(&access.Denial{Status: http.StatusTooManyRequests}, c.RemoteAddr().String())
		return &websocket.CloseError{Code: websocket.CodePolicy, Reason: "too many messages"}
	}
	var q socketRequest
	err := json.Unmarshal(payload, &q)
	changes := q.count()
	if kind != websocket.Text || err != nil || q.Publish == nil && changes == 0 || q.Ref == 0 {
		f := &access.Denial{Status: http.StatusBadRequest, Text: "malformed message"}
		t.Access.Count(f, c.RemoteAddr().String())
		return &websocket.CloseError{Code: websocket.CodePolicy, Reason: "malformed message"}
	}
	switch {
	case q.Publish == nil && changes == 1:
		return s.carryOut(q.Ref, &q.change)
	case q.Publish == nil || changes > 0:
		return s.refuse(q.Ref, malformed(errMalformed))
	}
	var write []string
	if !s.silent {
		write = s.rights.Write
	}
	f := t.Access.Permit(write, s.User, q.Publish.Topic, s.client)
	var stored stream.Receipt
	if f == nil {
		from := webhook.NewRequest(t.Hub.Clients.Name(s.ID), "websocket", s.User)
		stored, f = t.Access.PublishFor(t.Hub.Ctx, from, q.Publish.Topic, []byte(q.Publish.Data), q.Publish.Key)
	}
	if f != nil {
		return s.refuse(q.Ref, f)
	}
	return s.answer(socketAnswer{Ref: q.Ref, Published: &stored})
}

// carryOut makes a change, and answers.
func (s *socket) carryOut(ref uint64, q *change) error {
	ctx, cancel := context.WithTimeout(s.t.Hub.Ctx, access.JoinTimeout)
	defer cancel()
	var failed error // of the answer
	began := false   // the answer was sent
	c := changer{t: s.t, root: &s.Subscriber, rights: s.rights, client: s.client, transport: "websocket",
		remote: s.conn.RemoteAddr().String()}
	c.began = func(r changed) { began, failed = true, s.answer(socketAnswer{Ref: ref, changed: r}) }
	c.renewed = func(r *access.Rights) { s.rights = r }
	r, f, err := c.carryOut(ctx, q)
	switch {
	case err != nil && began: // the client was told that it has the topic
		return errComeBack
	case f != nil:
		return s.refuse(ref, f)
	case began:
		return failed
	}
	return s.answer(socketAnswer{Ref: ref, changed: r})
}

// queued and way implement queue.
func (s *socket) queued() int { return s.conn.Queued() }
func (s *socket) way() string { return "websocket" }

// refuse answers with a denial.
func (s *socket) refuse(ref uint64, f *access.Denial) error {
	s.t.Access.Count(f, s.conn.RemoteAddr().String())
	return s.answer(socketAnswer{Ref: ref, Error: &socketError{f.Status, f.Text, f.Wait.Milliseconds()}})
}

func (s *socket) answer(a socketAnswer) error {
	if s.conn.Write(websocket.Text, event.Encode(a)) == websocket.ErrQueueFull {
		return errComeBack // the client would wait for the answer
	}
	return nil
}

// give implements trunk.
func (s *socket) give(e *event.Event, filter string) error {
	return s.conn.WritePrepared(e.PreparedFor(s.t.Sockets, filter))
}

// Send implements sink.
func (s *socket) Send(topic int, e *event.Event) bool {
	if !s.pay() ||
		errors.Is(s.conn.WritePrepared(e.Prepared(s.t.Sockets)), websocket.ErrQueueFull) {
		s.drop(topic, e.Alone())
	}
	return true
}

// Gap implements sink.
func (s *socket) Gap(topic int, reason string, missed event.Span) {
	if errors.Is(s.tell(event.Gap{Reason: reason, Missed: []event.Miss{s.MissOf(topic, missed)}}), websocket.ErrQueueFull) {
		s.drop(topic, missed)
	}
}

func (s *socket) tell(g event.Gap) error {
	return s.conn.Write(websocket.Text, event.Encode(gapMessage{g.Reason, g.Missed}))
}

// drop notes that a client was not told of a span, if it stays.
func (s *socket) drop(topic int, missed event.Span) {
	if s.t.Config.SlowPolicy != streams.SlowDrop {
		return
	}
	s.t.slow.Lock()
	defer s.t.slow.Unlock()
	if s.owed == nil {
		s.owed = new(owed)
	}
	s.owed.lost.add(topic, missed)
	s.owes.Store(true)
}

// pay tells the client what it is owed: the greeting, and which events were dropped. It reports whether
// there was room for that.
func (s *socket) pay() bool {
	if !s.owes.Load() {
		return true
	}
	s.t.slow.Lock()
	defer s.t.slow.Unlock()
	if o := s.owed; o != nil { // another event has not paid
		if o.greeting != nil && s.conn.Write(websocket.Text, o.greeting) != nil {
			return false
		}
		o.greeting = nil
		if o.lost != nil && s.tell(o.lost.gap(&s.Subscriber)) != nil {
			return false
		}
	}
	s.owed = nil
	s.owes.Store(false)
	return true
}

// Flush implements sink.
func (s *socket) Flush(ctx context.Context) error {
	if d := s.t.Config.WriteTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return s.conn.Flush(ctx)
}

// End implements known.
func (s *socket) End(_ *Server, reason error) {
	switch {
	case errors.Is(reason, access.ErrDrain):
		s.conn.Close(websocket.CodeGoingAway, "come back elsewhere")
	case errors.Is(reason, access.ErrExpired):
		s.conn.Close(websocket.CodePolicy, "the token has expired")
	case errors.Is(reason, access.ErrKicked):
		s.conn.Close(codeKicked, "disconnected")
	default:
		s.conn.Abort()
	}
}

// codeKicked ends a WebSocket whose client must not come back: 4000 and the status of HTTP.
const codeKicked websocket.Code = 4000 + http.StatusForbidden

// Unsubscribed implements known.
func (s *socket) Unsubscribed(_ *Server, filter string) {
	s.conn.Write(websocket.Text, event.Encode(unsubscribedMessage{filter}))
}
