package websocket

import (
	"cmp"
	"compress/flate"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
)

// A Server is an http.Handler that upgrades requests to WebSocket connections, and the server of
// these connections.
//
// The fields must be set before the first request, and not be changed after it. OnMessage is
// required. The zero value of another field is its default, and a negative number means none. A
// Server must not be copied. Its methods may be called concurrently, and by the handlers, except
// for Shutdown, which waits for them.
//
// A panic of a handler is logged, counted in Stats.Panics, and ends its connection with the code
// 1011.
type Server struct {
	// OnOpen, if not nil, is called after the handshake and before the first message. r is the
	// request; r and its body must not be used after OnOpen has returned. An error ends the
	// connection, as one of OnMessage does. The connection gets broadcasts already before the call.
	OnOpen func(c *Conn, r *http.Request) error
	// OnMessage is called for each message, for one at a time of a connection. It may block; the
	// connection then reads no further. payload is valid until OnMessage returns, and may be
	// changed. If OnMessage returns an error, the connection ends: with the code of a *CloseError,
	// and otherwise with 1011.
	OnMessage func(c *Conn, kind Kind, payload []byte) error
	// OnPong, if not nil, is called for each pong frame. payload is valid until it returns.
	OnPong func(c *Conn, payload []byte)
	// OnClose, if not nil, is called once for each connection that Upgrade has returned or OnOpen
	// was called for, after it was closed. No other handler runs for the connection then. errors.Is
	// and errors.As find in err
	//
	//   - a *CloseError, if a close frame was sent or received. Its code is CodeAbnormal if the peer closed the connection
	//     without one;
	//   - what a handler has returned, or a *PanicError;
	//   - ErrIdle, ErrSlow, ErrMessageTimeout, ErrTooLong, or ErrServerClosed;
	//   - otherwise the error of the connection.
	OnClose func(c *Conn, err error)

	// CheckOrigin reports whether a request may be upgraded. The default allows requests without an
	// Origin header, which are not from browsers, and requests whose Origin has the host and port
	// of the request's Host header. Browsers let every page connect to every server, with the
	// user's cookies, so a server that allows all origins must not trust cookies.
	CheckOrigin func(r *http.Request) bool
	// Subprotocols are the subprotocols that the server speaks, the preferred one first.
	// Conn.Subprotocol returns the one that was chosen.
	Subprotocols []string

	// Compression is the level, 1 to 9 as in compress/flate, with which messages are compressed for
	// peers that offer permessage-deflate. 0 means that the extension is not used. A compressor
	// needs about a megabyte while it compresses a message; connections need nothing. Messages of
	// fewer than CompressMin bytes are sent as they are; 0 means 512. The length of a compressed
	// message shows an observer of the network whether its parts are alike, so a message must not
	// have both a secret and data that others choose.
	Compression int
	CompressMin int

	// MaxConns bounds the number of connections; further requests are answered with the status 503.
	// MaxRunning bounds the number of connections whose handlers run concurrently, as
	// park.Config.MaxRunning does. 0 means no limit.
	MaxConns, MaxRunning int
	// MaxMessage bounds the bytes of a message, after decompression, and MaxFrame those of a frame.
	// A larger one ends the connection with the code 1009 and ErrTooLong. 0 means 1 MiB for
	// MaxMessage, and no other bound for MaxFrame. Before decompression, a message may have an
	// eighth more, because deflate makes some longer.
	MaxMessage, MaxFrame int
	// MaxQueued bounds the memory, in bytes, of what is queued for a connection whose peer reads
	// too slowly: a message counts with its length and 64 bytes. A message that was begun is queued
	// in any case. 0 means 256 KiB. SlowPolicy says what happens at the bound; the default is
	// SlowClose. Of the answers to pings only the latest waits. The system has buffers of its own
	// besides, of some megabytes with Linux's settings.
	MaxQueued  int
	SlowPolicy SlowPolicy
	// MaxPings bounds the pings and pongs that a peer sends in a second. A connection whose peer
	// sends more ends with the code 1008. 0 means no limit.
	MaxPings int

	// IdleTimeout ends a connection on which no message was sent or received for this time, with
	// the code 1001 and ErrIdle. Pings and pongs do not count. 0 means never.
	IdleTimeout time.Duration
	// PingInterval is the time after which a connection from which nothing was received is pinged,
	// and PongTimeout the time after which a connection is closed with ErrIdle if nothing is
	// received after the ping. 0 means 30 and 10 seconds. Without pings, the end of a peer that
	// vanishes silently is not noticed.
	PingInterval, PongTimeout time.Duration
	// ReadTimeout ends a connection if a message is incomplete for this time after its first byte,
	// with the code 1008 and ErrMessageTimeout. WriteTimeout closes a connection whose peer takes
	// nothing of what is queued for this time, with ErrSlow. 0 means 10 seconds.
	ReadTimeout, WriteTimeout time.Duration
	// CloseTimeout bounds the time from the close frame of this side to the end of the peer's
	// stream, which follows its close frame. After that time, or after 16 MiB that are not handled
	// any more, the connection is closed in any case. 0 means 5 seconds.
	CloseTimeout time.Duration

	// Name is as in park.Config. TimeCalls makes the server measure how long each call of OnMessage
	// takes, for Stats.CallTime.
	Name      string
	TimeCalls bool
	// Backend, Unwrap and Logger are as in park.Config. The Logger also receives panics of
	// handlers, requests that could not be upgraded because of MaxConns or of the server, and, at
	// the debug level, what peers must not send.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	once     sync.Once
	failed   error // of prepare
	streams  stream.Streams
	log      serving.Log
	clock    clock.Clock
	start    time.Time
	limit    limits
	deflater *deflater

	rejected, calls, idle, late atomic.Uint64
	times                       metrics.Recorder
}

// A SlowPolicy says what happens when more than MaxQueued bytes would be queued for a connection.
type SlowPolicy = serving.SlowPolicy

const (
	// SlowClose closes the connection with ErrSlow. Its peer has lost no message until then, and
	// learns that it must begin again.
	SlowClose = serving.SlowClose
	// SlowDrop drops the message: Write fails with ErrQueueFull. The connection stays open.
	SlowDrop = serving.SlowDrop
)

// Stats holds counters of a Server. Those of its lot are those of Lots.
type Stats struct {
	Conns       int   // connections that are open
	Parked      int   // connections that are parked, or ready and waiting for a worker
	Waiting     int   // the part of Parked that is ready, and waits because handlers of MaxRunning connections are running
	Running     int   // connections whose handlers are running
	Workers     int   // goroutines that run handlers or wait for work
	QueuedBytes int64 // bytes that wait for slow peers; a prepared message counts for each connection

	Accepted uint64            // requests that were upgraded
	Refused  uint64            // requests beyond MaxConns
	Rejected uint64            // other requests that were not upgraded because of what they are
	Dropped  uint64            // messages that were dropped because of SlowDrop
	Calls    uint64            // calls of OnMessage
	CallTime metrics.Histogram // how long those took that returned, if TimeCalls is set
	Panics   uint64            // panics of handlers
	TimedOut metrics.TimedOut  // connections closed because of a timeout; Slow counts those closed by SlowClose too
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	in := s.streams.Stats()
	st := Stats{Conns: in.Conns, Parked: in.Parked, Waiting: in.Waiting, Running: in.Running, Workers: in.Workers,
		QueuedBytes: in.QueuedBytes, Accepted: in.Accepted, Refused: in.Refused, Rejected: s.rejected.Load(),
		Dropped: in.Dropped, Calls: s.calls.Load(), Panics: s.log.Panics() + in.Panics, TimedOut: in.TimedOut}
	st.TimedOut.Idle += s.idle.Load()
	st.TimedOut.Message = s.late.Load()
	s.times.AddTo(&st.CallTime)
	return st
}

// Lots returns the server's lot, for observers such as package debug. It returns none before the
// first request. The server owns the lot.
func (s *Server) Lots() []*park.Lot { return s.streams.Lots() }

// The timeouts, of which 0 is none.
func (s *Server) pingInterval() time.Duration { return serving.Or(s.PingInterval, 30*time.Second) }
func (s *Server) pongTimeout() time.Duration {
	return serving.Or(s.PongTimeout, serving.DefaultTimeout)
}
func (s *Server) readTimeout() time.Duration {
	return serving.Or(s.ReadTimeout, serving.DefaultTimeout)
}
func (s *Server) closeTimeout() time.Duration { return serving.Or(s.CloseTimeout, 5*time.Second) }

// now returns the time since the server's start.
func (s *Server) now() time.Duration { return s.clock.Since(s.start) }

// prepare checks the fields and starts the server, at its first request.
func (s *Server) prepare() error {
	s.once.Do(func() { s.failed = s.check() })
	return s.failed
}

// check checks the fields, and sets those that are derived from them.
func (s *Server) check() error {
	s.log.Prefix, s.log.Name, s.log.Logger = "websocket: ", s.Name, func() *slog.Logger { return s.Logger }
	invalid := func(field string) error {
		return fmt.Errorf("websocket: %w: %s", socknotify.ErrInvalid, field)
	}
	switch {
	case s.OnMessage == nil:
		return invalid("OnMessage is nil")
	case s.Compression > flate.BestCompression:
		return invalid("Compression is more than 9")
	case len(s.Subprotocols) > math.MaxUint16-1:
		return invalid("Subprotocols are too many")
	}
	for _, p := range s.Subprotocols {
		if !isToken(p) {
			return invalid(fmt.Sprintf("Subprotocols has %q, which is not a token", p))
		}
	}
	s.clock = clock.Current()
	s.start = s.clock.Now()
	s.limit.message = bound(s.MaxMessage, 1<<20)
	s.limit.frame = bound(s.MaxFrame, math.MaxInt)
	if s.Compression > 0 {
		s.deflater = &deflater{level: s.Compression}
	}
	g := &s.streams
	g.MaxConns, g.MaxRunning, g.MaxQueued, g.SlowPolicy = s.MaxConns, s.MaxRunning, s.MaxQueued, s.SlowPolicy
	g.WriteTimeout = s.WriteTimeout
	g.Name, g.Backend, g.Unwrap, g.Logger = s.Name, s.Backend, s.Unwrap, s.Logger
	g.OnInput = func(in *stream.Stream, b []byte) error {
		in.Value.(*Conn).consume(b)
		return nil
	}
	g.OnTimer = func(in *stream.Stream) time.Duration { return in.Value.(*Conn).due() }
	g.OnShutdown = func(in *stream.Stream) { in.Value.(*Conn).shut(serverEnds, serverEnds) }
	g.OnClose = func(in *stream.Stream, err error) { in.Value.(*Conn).finish(err) }
	return nil
}

// bound returns the value of a limit of which 0 means otherwise. No limit is the highest int.
func bound(limit, otherwise int) uint64 {
	if limit < 0 {
		return math.MaxInt
	}
	return uint64(cmp.Or(limit, otherwise))
}

// serverEnds is how Shutdown ends connections.
var serverEnds = &CloseError{Code: CodeGoingAway, Reason: "the server ends", cause: ErrServerClosed}

// Shutdown refuses further requests with the status 503, ends all connections with the code 1001,
// and waits until their OnClose has returned. CloseTimeout bounds the wait for peers. If ctx is
// done first, Shutdown closes the connections that are left, does not wait for handlers, and
// returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
// socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.streams.Shutdown(ctx)
	s.log.Flush()
	return err
}

// Close closes the server and all connections at once. It does not wait for handlers. It always
// returns nil.
func (s *Server) Close() error {
	s.log.Flush()
	return s.streams.Close()
}
