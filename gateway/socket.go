package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/websocket"
)

// A socket is a client of package websocket, which parks its connection, pings it, and queues what it does not take.
type socket struct {
	subscriber
	g      *Gateway
	conn   *websocket.Conn
	client string      // for the limits
	write  []string    // topics that the client may publish to
	missed atomic.Bool // lost is not nil
	lost   backlog     // guarded by Gateway.slow, because events of several topics may come at once
}

// greeting is the first message to a WebSocket. Last has a position for each topic, in the order of the request: a client
// that comes back without having got an event asks for what is after these. Client is the id of the
// connection.
type greeting struct {
	Client string   `json:"client"`
	Last   []string `json:"last"`
	gapMessage
}

// A gapMessage is a gap in a message that may have something else.
type gapMessage struct {
	Gap    string `json:"gap,omitempty"`
	Missed []miss `json:"missed,omitempty"`
}

// add adds a gap, unless it is nil.
func (m *gapMessage) add(g *gap) {
	if g == nil {
		return
	}
	if m.Gap != gapEpoch {
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

// askKey is the key of the ask in the context of a request that is upgraded.
type askKey struct{}

func (g *Gateway) newSockets() *websocket.Server {
	return &websocket.Server{
		OnOpen:    g.openSocket,
		OnMessage: g.serveMessage,
		OnClose: func(c *websocket.Conn, _ error) {
			if s, ok := c.Value.(*socket); ok {
				g.left(&s.subscriber, "websocket")
			}
		},
		CheckOrigin: func(r *http.Request) bool {
			return websocket.SameOrigin(r) || allowsOrigin(g.config.Origins, r.Header.Get("Origin"))
		},
		MaxMessage:   2*g.config.MaxMessage + maxHead, // JSON is longer than the event
		MaxPings:     maxPings,
		MaxQueued:    g.config.MaxQueued,
		SlowPolicy:   g.config.SlowPolicy,
		Compression:  g.config.Compression,
		CompressMin:  g.config.CompressMin,
		WriteTimeout: g.config.WriteTimeout,
		PingInterval: g.config.Heartbeat,
		PongTimeout:  g.config.WriteTimeout,
		Name:         g.config.Name,
		Logger:       g.config.Logger,
	}
}

// serveSocket answers a request for a WebSocket.
func (g *Gateway) serveSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	if _, err := g.sockets.Upgrade(w, r.WithContext(context.WithValue(ctx, askKey{}, a))); err != nil {
		g.hub.count.rejected.Add(1)
	}
}

var errComeBack = &websocket.CloseError{Code: websocket.CodeTryAgainLater,
	Reason: "come back with the last id"}

// openSocket joins the hub.
func (g *Gateway) openSocket(c *websocket.Conn, r *http.Request) error {
	a := r.Context().Value(askKey{}).(ask)
	s := &socket{g: g, conn: c, client: a.client, write: a.write}
	s.to = s
	a.identify(&s.subscriber)
	c.Value = s
	*a.kept = true
	first := greeting{Client: g.hub.clients.name(s.id), Last: ids(a.wants)}
	first.add(a.gap)
	c.Write(websocket.Text, encode(first)) // if it fails, OnClose is called
	if g.hub.join(r.Context(), &s.subscriber, a.wants) != nil {
		return errComeBack
	}
	return nil
}

// A socketRequest is a message of a client: an event to publish. Ref is a number that the client
// chooses, and that the answer has.
type socketRequest struct {
	Ref     uint64 `json:"ref"`
	Publish *struct {
		Topic string `json:"topic"`
		Data  string `json:"data"`
		Key   string `json:"key"`
	} `json:"publish"`
}

// A socketAnswer is the answer to a socketRequest, with one of the two.
type socketAnswer struct {
	Ref       uint64       `json:"ref"`
	Published *Receipt     `json:"published,omitempty"`
	Error     *socketError `json:"error,omitempty"`
}

type socketError struct {
	Status int    `json:"status"` // as that of HTTP
	Text   string `json:"text"`
	Retry  int64  `json:"retry,omitempty"` // milliseconds before the next attempt
}

// serveMessage publishes an event that a client has sent, and answers with its id or with why not.
func (g *Gateway) serveMessage(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
	s := c.Value.(*socket)
	if s.expires != 0 && time.Now().Unix() >= s.expires {
		s.end(g, errExpired)
		return nil
	}
	if g.messages.take(s.client) > 0 {
		g.count(&denial{status: http.StatusTooManyRequests}, c.RemoteAddr().String())
		return &websocket.CloseError{Code: websocket.CodePolicy, Reason: "too many messages"}
	}
	var q socketRequest
	if kind != websocket.Text || json.Unmarshal(payload, &q) != nil || q.Publish == nil || q.Ref == 0 {
		f := &denial{status: http.StatusBadRequest, text: "malformed message"}
		g.count(f, c.RemoteAddr().String())
		return &websocket.CloseError{Code: websocket.CodePolicy, Reason: "malformed message"}
	}
	answer := socketAnswer{Ref: q.Ref}
	f := g.permit(s.write, q.Publish.Topic, s.client)
	if f == nil {
		var receipt Receipt
		from := newHookRequest(g.hub.clients.name(s.id), "websocket", s.user)
		receipt, f = g.publishFor(g.hub.ctx, from, q.Publish.Topic, []byte(q.Publish.Data), q.Publish.Key)
		answer.Published = &receipt
	}
	if f != nil {
		g.count(f, c.RemoteAddr().String())
		answer.Published = nil
		answer.Error = &socketError{f.status, f.text, f.wait.Milliseconds()}
	}
	if c.Write(websocket.Text, encode(answer)) == websocket.ErrQueueFull {
		return errComeBack // the client would wait for the answer
	}
	return nil
}

// send implements sink.
func (s *socket) send(topic int, e *event) {
	if s.missed.Load() && !s.tellMissed() {
		s.drop(topic, e.alone())
		return
	}
	if errors.Is(s.conn.WritePrepared(e.prepared(s.g.sockets)), websocket.ErrQueueFull) {
		s.drop(topic, e.alone())
	}
}

// gap implements sink.
func (s *socket) gap(topic int, reason string, missed span) {
	if errors.Is(s.tell(gap{reason, []miss{s.missOf(topic, missed)}}), websocket.ErrQueueFull) {
		s.drop(topic, missed)
	}
}

func (s *socket) tell(g gap) error {
	return s.conn.Write(websocket.Text, encode(gapMessage{g.Reason, g.Missed}))
}

// drop notes that a client was not told of a span, if it stays.
func (s *socket) drop(topic int, missed span) {
	if s.g.config.SlowPolicy != SlowDrop {
		return
	}
	s.g.slow.Lock()
	defer s.g.slow.Unlock()
	s.lost.add(topic, missed)
	s.missed.Store(true)
}

// tellMissed tells the client which events were dropped. It reports whether there was room for
// that.
func (s *socket) tellMissed() bool {
	s.g.slow.Lock()
	defer s.g.slow.Unlock()
	if s.lost != nil && s.tell(s.lost.gap(&s.subscriber)) != nil {
		return false
	}
	s.lost = nil
	s.missed.Store(false)
	return true
}

// flush implements sink.
func (s *socket) flush(ctx context.Context) error {
	if d := s.g.config.WriteTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return s.conn.Flush(ctx)
}

// end implements sink.
func (s *socket) end(_ *Gateway, reason error) {
	switch {
	case errors.Is(reason, errDrain):
		s.conn.Close(websocket.CodeGoingAway, "come back elsewhere")
	case errors.Is(reason, errExpired):
		s.conn.Close(websocket.CodePolicy, "the token has expired")
	case errors.Is(reason, errKicked):
		s.conn.Close(codeKicked, "disconnected")
	default:
		s.conn.Abort()
	}
}

// codeKicked ends a WebSocket whose client must not come back: 4000 and the status of HTTP.
const codeKicked websocket.Code = 4000 + http.StatusForbidden

// unsubscribed implements sink.
func (s *socket) unsubscribed(_ *Gateway, topic int) {
	s.conn.Write(websocket.Text, encode(unsubscribedMessage{s.topics[topic].filter()}))
}

// sweep closes clients whose tokens have expired.
func (g *Gateway) sweep() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			now := time.Now().Unix()
			g.hub.clients.each(func(s *subscriber) {
				if s.expires != 0 && now >= s.expires {
					s.to.end(g, errExpired)
				}
			})
		case <-g.hub.ctx.Done():
			return
		}
	}
}
