package mercure

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/transport"

	mrand "math/rand/v2"
	"net/http"
	"sync/atomic"

	"github.com/socknotify/socknotify/sse"
)

// A client is a client that subscribes by Mercure's protocol. It is a member of the feed of
// all updates, and chooses among them.
//
// Between updates it gets its position, as an id without data, so that it does not come back with
// an id that has left the stream. A browser's EventSource takes that as its last id, without an
// event for the page, if the block ends. Some other clients, such as symfony/http-client, give each
// block that ends to the program. So for clients that are not EventSource blocks with an id alone,
// and heartbeats, do not end: bare says so.
type client struct {
	hub.Subscriber
	m       *Server
	conn    *sse.Conn
	wanted  []*watched
	allowed []*watched
	name    string // the IRI of the subscriber
	payload json.RawMessage
	bare    bool
	joined  atomic.Bool
	skipped int // updates that it did not want, in the history

	// The position that it was told last. It belongs to the goroutine of open until the client is a
	// member of the feed, and is guarded by the feed's mu then.
	told uint64
}

// open joins the hub, which delivers what the client has missed.
func (m *Server) open(c *sse.Conn, r *http.Request, _ string) error {
	a := access.AskOf(r)
	q := a.Extra.(*ask)
	s := &client{m: m, conn: c, name: newIRI(), payload: q.payload, bare: q.bare}
	s.To = s
	a.Identify(&s.Subscriber)
	c.Value = s
	*a.Kept = true
	var err error
	if s.wanted, err = m.acquire(q.topics); err != nil {
		return err
	}
	if s.allowed, err = m.acquire(q.allowed); err != nil {
		return err
	}
	var b []byte
	if d := m.transports.Config.Retry.Milliseconds(); d > 0 {
		b = fmt.Appendf(b, "retry: %d\n", d/2+mrand.Int64N(d+1))
	}
	s.tell(b, a.Wants[0].After.Seq)
	if err := m.hub.Join(r.Context(), &s.Subscriber, a.Wants); err != nil {
		return err // the client comes back with its id
	}
	s.joined.Store(true)
	m.tracker.joined(s)
	return nil
}

// newIRI returns the IRI of a subscriber.
func newIRI() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *client) stream() *stream.Stream { return (*stream.Stream)(s.conn) }

// tell writes what is in b, and the position of the client.
func (s *client) tell(b []byte, seq uint64) {
	s.told = seq
	s.stream().WriteShared(appendPosition(b, event.Position{Epoch: s.m.hub.Epoch, Seq: seq}, s.bare))
}

// appendPosition appends a position. It ends the block unless bare is set.
func appendPosition(b []byte, at event.Position, bare bool) []byte {
	b = append(at.Append(append(b, "id: #"...)), '\n')
	if !bare {
		b = append(b, '\n')
	}
	return b
}

// updates make the feed of all updates special: its members choose among them.
type updates struct{}

func (updates) Begin(context.Context) error  { return nil }
func (updates) Take(*event.Event) bool       { return true }
func (updates) Welcome(*hub.Subscriber, int) {}
func (updates) Choose(e *event.Event) (hub.Choice, bool) {
	u, ok := parseUpdate(e)
	return u, ok
}

// Give gives an update to a client that wants it and may get it. The feed of updates is locked.
func (u *update) Give(to hub.Sink) bool {
	s := to.(*client)
	if !matchesUpdate(s.wanted, u) || u.Private && !matchesUpdate(s.allowed, u) {
		return false
	}
	s.write(u)
	return true
}

// Send implements sink, for updates that the client has missed.
func (s *client) Send(_ int, e *event.Event) bool {
	u, ok := parseUpdate(e)
	if !ok {
		return false
	}
	if !matchesAny(s.wanted, u.Topics) || u.Private && !matchesAny(s.allowed, u.Topics) {
		if s.skipped++; s.skipped%progressEvery == 0 { // it may take more than one connection
			s.tell(nil, u.seq)
		}
		return false
	}
	s.write(u)
	return true
}

func (s *client) write(u *update) {
	s.told = u.seq
	s.stream().WriteShared(u.block(s.bare))
}

// Gap implements sink. A client is told in the answer to its next request what it has lost.
func (s *client) Gap(int, string, event.Span) { s.stream().Close(errGap) }

var errGap = errors.New("gateway: events have left the stream before the client got them")

// Flush implements sink.
func (s *client) Flush(ctx context.Context) error { return s.conn.Flush(ctx) }

// End implements known.
func (s *client) End(_ *transport.Server, reason error) { s.stream().Close(reason) }

// Unsubscribed implements known. No order has the topic of the updates.
func (s *client) Unsubscribed(*transport.Server, string) {}

// heartbeat is called when nothing was sent for a time. The position is written while the feed is
// held, so that no update with a lower one follows.
func (s *client) heartbeat() {
	if s.joined.Load() {
		f := s.Topics[0].Feed
		f.Lock()
		defer f.Unlock()
		if at := f.Settled(); at > s.told {
			s.tell(nil, at)
			return
		}
	}
	s.stream().WriteShared(heartbeat)
}

var heartbeat = []byte(":\n")

// serve makes a client of a request.
func (m *Server) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, a access.Ask) {
	w.Header().Set(lastEventID, a.Extra.(*ask).answered)
	w.Header().Set(access.ClientHeader, m.hub.Clients.Name(a.ID))
	if _, err := m.events.Open(w, a.With(ctx, r)); err != nil {
		m.access.Rejected.Add(1)
	}
}
