package sse

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
)

// A Server is an http.Handler that makes clients of requests, and the server of these clients.
//
// The fields must be set before the first request, and not be changed after it. The zero value of a
// field is its default, and a negative number means none. A Server must not be copied. Its methods
// may be called concurrently, and by the functions, except for Shutdown, which waits for them. A
// panic of a function is logged, counted in Stats.Panics, and ends its client.
type Server struct {
	// OnOpen, if not nil, is called when a client has come, in the goroutine of its request. It may
	// send what the client has missed, and block. lastID is the client's Last-Event-ID: the ID of
	// the last event that it has got, or the empty string. r must not be used after OnOpen has
	// returned, and neither must its strings, which keep it in memory. An error ends the client
	// after what is queued. Broadcasts may reach the client before the call and during it.
	OnOpen func(c *Conn, r *http.Request, lastID string) error
	// OnHeartbeat, if not nil, is called instead of sending a comment when nothing was sent to a
	// client for Heartbeat.
	OnHeartbeat func(c *Conn)
	// OnClose, if not nil, is called once for each client that OnOpen could be called for, after
	// its connection was closed. err is io.EOF if the client has ended it; what OnOpen has
	// returned; park.ErrSlow, park.ErrTooLong, park.ErrServerClosed, stream.ErrClosed or a
	// *park.PanicError; and otherwise the error of the connection.
	OnClose func(c *Conn, err error)

	// Heartbeat is the time after which a client that nothing was sent to gets a comment, so that
	// proxies keep its connection and a client that has vanished is noticed. 0 means 25 seconds.
	Heartbeat time.Duration
	// Retry is the time after which clients come back when they have lost their connection. Each
	// gets a value of its own between half and one and a half of it, so that they do not all come
	// back at once. 0 means 3 seconds, and a negative value leaves it to the client.
	Retry time.Duration

	// MaxConns bounds the number of clients; further requests are answered with the status 503. 0
	// means no limit.
	MaxConns int
	// MaxQueued bounds the memory, in bytes, of what is queued for a client that reads too slowly:
	// an event counts with its length and 64 bytes. 0 means 256 KiB. SlowPolicy says what happens
	// at the bound: the default SlowClose closes the connection, and the client comes back with its
	// last id.
	MaxQueued  int
	SlowPolicy stream.SlowPolicy
	// WriteTimeout closes the connection of a client that takes nothing of what is queued for this
	// time. 0 means 10 seconds. If the connection cannot be taken over, the ResponseWriter must have
	// SetWriteDeadline or Unwrap: a Write that blocks cannot be ended otherwise.
	WriteTimeout time.Duration

	// Lot, if not nil, is the lot that parks the connections, as in stream.Streams.
	Lot *park.Lot
	// Name, Backend, Unwrap and Logger are as in park.Config. The Logger also receives panics, and
	// requests beyond MaxConns.
	Name    string
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	once     sync.Once
	streams  stream.Streams
	log      serving.Log
	rejected atomic.Uint64
}

// A Conn is a client of a Server. It is a stream.Stream, to which it can be converted. Its methods
// may be called concurrently. None of them waits for the client, except for Flush. Value is for the
// program.
type Conn stream.Stream

func (c *Conn) stream() *stream.Stream { return (*stream.Stream)(c) }

// Send sends an event. What the system does not take at once is queued, up to Server.MaxQueued.
// Send fails as Append and stream.Stream.Write do.
func (c *Conn) Send(e Event) error {
	buf := buffers.Get().(*[]byte)
	b, err := Append((*buf)[:0], e)
	if err == nil {
		err = c.stream().Write(b)
	}
	if *buf = b; cap(b) <= 64<<10 {
		buffers.Put(buf)
	}
	return err
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// SendPrepared is Send with a prepared event.
func (c *Conn) SendPrepared(p *Prepared) error { return c.stream().WriteShared(p.b) }

// Flush waits until everything that was sent has been handed to the system, or the client has gone.
// It holds a program back that sends more than MaxQueued. It fails as stream.Stream.Flush does.
func (c *Conn) Flush(ctx context.Context) error { return c.stream().Flush(ctx) }

// Close closes the connection after what is queued. The client comes back after its retry time,
// unless its page has closed the EventSource.
func (c *Conn) Close() error { return c.stream().Close(nil) }

// Abort closes the connection at once. What is queued is lost.
func (c *Conn) Abort() error { return c.stream().Abort(nil) }

// RemoteAddr returns the address of the client.
func (c *Conn) RemoteAddr() net.Addr { return c.stream().RemoteAddr() }

// Broadcast sends an event to all clients, and returns the number of those that have taken it. It
// does not wait for any. Clients that come while it runs may miss the event.
func (s *Server) Broadcast(p *Prepared) (sent int) {
	for stream := range s.streams.All() {
		if stream.WriteShared(p.b) == nil {
			sent++
		}
	}
	return sent
}

// Dismiss sends a client away: it is told to come back after a time around Retry, and its
// connection is closed after what is queued. OnClose gets the cause, or stream.ErrClosed if
// that is nil.
func (s *Server) Dismiss(c *Conn, cause error) {
	c.stream().WriteLast(s.appendRetry(nil), cause)
	c.stream().Close(cause)
}

// Stats holds counters of a Server. Those of its lot are those of Lots.
type Stats struct {
	Conns       int   // clients
	Parked      int   // the part of them that needs no goroutine
	QueuedBytes int64 // bytes that wait for slow clients; a prepared event counts for each

	Accepted uint64           // requests that have become clients
	Refused  uint64           // requests beyond MaxConns
	Rejected uint64           // requests with another method than GET, or of HTTP/1 with a body
	Dropped  uint64           // events that were dropped because of SlowDrop
	Panics   uint64           // panics of functions
	TimedOut metrics.TimedOut // Slow has the clients closed because of WriteTimeout or SlowClose
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	s.once.Do(s.prepare) // which otherwise may change the streams
	in := s.streams.Stats()
	return Stats{
		Conns: in.Conns, Parked: in.Parked, QueuedBytes: in.QueuedBytes,
		Accepted: in.Accepted, Refused: in.Refused, Rejected: s.rejected.Load(),
		Dropped: in.Dropped, Panics: in.Panics, TimedOut: in.TimedOut,
	}
}

// Lots returns the server's lot, for observers such as package debug. It returns none before the
// first request. The server owns the lot, unless it is the field Lot.
func (s *Server) Lots() []*park.Lot { return s.streams.Lots() }

// Shutdown refuses further requests with the status 503, dismisses all clients, and waits until
// their OnClose has returned. WriteTimeout bounds the wait for a client. If ctx is done first,
// Shutdown aborts the clients that are left, and returns the cause of ctx. If ctx is nil, Shutdown
// does nothing and fails with socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.streams.Shutdown(ctx)
	s.log.Flush()
	return err
}

// Close refuses further requests, and aborts all clients. It always returns nil.
func (s *Server) Close() error {
	s.log.Flush()
	return s.streams.Close()
}

// prepare sets up the streams at the first request.
func (s *Server) prepare() {
	s.log.Prefix, s.log.Name, s.log.Logger = "sse: ", s.Name, func() *slog.Logger { return s.Logger }
	g := &s.streams
	g.MaxConns, g.MaxQueued, g.SlowPolicy = s.MaxConns, s.MaxQueued, s.SlowPolicy
	g.WriteTimeout = s.WriteTimeout
	g.Lot, g.Name, g.Backend, g.Unwrap, g.Logger = s.Lot, s.Name, s.Backend, s.Unwrap, s.Logger
	g.OnTimer = func(in *stream.Stream) time.Duration { return s.due((*Conn)(in)) }
	g.OnShutdown = func(in *stream.Stream) { s.Dismiss((*Conn)(in), park.ErrServerClosed) }
	if s.OnClose != nil {
		g.OnClose = func(in *stream.Stream, err error) { s.OnClose((*Conn)(in), err) }
	}
}

var heartbeat = []byte(":\n\n")

// due sends a heartbeat if it is time. It returns the time until the next one, or 0.
func (s *Server) due(c *Conn) time.Duration {
	d := serving.Or(s.Heartbeat, 25*time.Second)
	left := d - c.stream().Idle()
	switch {
	case d == 0:
		return 0
	case left > 0:
		return left
	case c.stream().Queued() > 0: // WriteTimeout bounds that
	case s.OnHeartbeat != nil:
		s.OnHeartbeat(c)
	default:
		c.stream().WriteShared(heartbeat)
	}
	return d
}

// appendRetry appends the block that tells a client when to come back.
func (s *Server) appendRetry(b []byte) []byte {
	if d := serving.Or(s.Retry, 3*time.Second).Milliseconds(); d > 0 {
		b = fmt.Appendf(b, "retry: %d\n\n", d/2+rand.Int64N(d+1))
	}
	return b
}
