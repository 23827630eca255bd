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

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/clock"
	"github.com/socknotify/socknotify/internal/serving"
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
	// fewer than CompressMin bytes are sent as they are; 0 means 512.
	Compression int
	CompressMin int

	// MaxConns bounds the number of connections; further requests are answered with the status 503.
	// MaxRunning bounds the number of connections whose handlers run concurrently, as
	// park.Config.MaxRunning does. 0 means no limit.
	MaxConns, MaxRunning int
	// MaxMessage bounds the bytes of a message, after decompression, and MaxFrame those of a frame.
	// A larger one ends the connection with the code 1009 and ErrTooLong. 0 means 1 MiB for
	// MaxMessage, and MaxMessage for MaxFrame.
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

	log       serving.Log
	clock     clock.Clock
	start     time.Time
	limit     limits
	maxQueued uint64
	deflater  *deflater
	// goroutines write for connections whose handlers run, and read from connections that cannot be
	// parked.
	goroutines sync.WaitGroup

	queued                                      atomic.Int64
	accepted, refused, rejected, dropped, calls atomic.Uint64
	idle, slow, late                            atomic.Uint64 // of Stats.TimedOut
	times                                       metrics.Recorder

	mu      sync.Mutex
	lot     *park.Lot
	failed  error
	conns   []*Conn
	open    int // upgrades under way, and connections whose OnClose has not returned
	closing bool
	empty   chan struct{} // closed when closing is set and open is 0
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
	st := Stats{QueuedBytes: s.queued.Load(), Accepted: s.accepted.Load(), Refused: s.refused.Load(),
		Rejected: s.rejected.Load(), Dropped: s.dropped.Load(), Calls: s.calls.Load(), Panics: s.log.Panics(),
		TimedOut: metrics.TimedOut{Idle: s.idle.Load(), Slow: s.slow.Load(), Message: s.late.Load()}}
	s.times.AddTo(&st.CallTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns = s.open
	if s.lot != nil {
		lot := s.lot.Stats()
		st.Parked, st.Waiting, st.Running, st.Workers = lot.Parked, lot.Waiting, lot.Running, lot.Workers
	}
	return st
}

// Lots returns the server's lot, for observers such as package debug. It returns none before the
// first request. The server owns the lot.
func (s *Server) Lots() (lots []*park.Lot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot != nil {
		lots = append(lots, s.lot)
	}
	return lots
}

// The timeouts, of which 0 is none.
func (s *Server) pingInterval() time.Duration { return serving.Or(s.PingInterval, 30*time.Second) }
func (s *Server) pongTimeout() time.Duration {
	return serving.Or(s.PongTimeout, serving.DefaultTimeout)
}
func (s *Server) readTimeout() time.Duration {
	return serving.Or(s.ReadTimeout, serving.DefaultTimeout)
}
func (s *Server) writeTimeout() time.Duration {
	return serving.Or(s.WriteTimeout, serving.DefaultTimeout)
}
func (s *Server) closeTimeout() time.Duration { return serving.Or(s.CloseTimeout, 5*time.Second) }

// now returns the time since the server's start.
func (s *Server) now() time.Duration { return s.clock.Since(s.start) }

// begin starts the server at its first request, and counts an upgrade, unless the server is closed
// or full. A nil error must be followed by done.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return ErrServerClosed
	case s.failed != nil:
		return s.failed
	case s.lot == nil:
		if s.failed = s.prepare(); s.failed != nil {
			return s.failed
		}
	}
	if s.MaxConns > 0 && s.open >= s.MaxConns {
		s.refused.Add(1)
		return errFull
	}
	s.open++
	return nil
}

var errFull = fmt.Errorf("websocket: upgrade: too many connections")

// prepare checks the fields and makes the lot.
func (s *Server) prepare() error {
	s.log.Prefix, s.log.Name, s.log.Logger = "websocket: ", s.Name, func() *slog.Logger { return s.Logger }
	invalid := func(field string) error {
		return fmt.Errorf("websocket: %w: %s", socknotify.ErrInvalid, field)
	}
	switch {
	case s.OnMessage == nil:
		return invalid("OnMessage is nil")
	case s.Compression > flate.BestCompression:
		return invalid("Compression is more than 9")
	case !s.SlowPolicy.Valid():
		return invalid("SlowPolicy is unknown")
	}
	for _, p := range s.Subprotocols {
		if !isToken(p) {
			return invalid(fmt.Sprintf("Subprotocols has %q, which is not a token", p))
		}
	}
	lot, err := park.New(park.Config{MaxRunning: s.MaxRunning, Backend: s.Backend, Unwrap: s.Unwrap, Name: s.Name,
		Logger: s.Logger})
	if err != nil {
		return err
	}
	s.lot, s.clock, s.empty = lot, clock.Current(), make(chan struct{})
	s.start = s.clock.Now()
	s.limit.message = bound(s.MaxMessage, 1<<20)
	s.limit.frame = min(s.limit.message, bound(s.MaxFrame, math.MaxInt))
	s.maxQueued = bound(s.MaxQueued, 256<<10)
	if s.Compression > 0 {
		s.deflater = &deflater{level: s.Compression}
	}
	return nil
}

// bound returns the value of a limit of which 0 means otherwise. No limit is the highest int.
func bound(limit, otherwise int) uint64 {
	if limit < 0 {
		return math.MaxInt
	}
	return uint64(cmp.Or(limit, otherwise))
}

// done ends what begin has begun: the upgrade has failed, or OnClose has returned.
func (s *Server) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && s.closing {
		close(s.empty)
	}
}

// add adds a connection. It reports whether the server is still open.
func (s *Server) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.index = len(s.conns)
	s.conns = append(s.conns, c)
	return !s.closing
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.conns) - 1
	last := s.conns[end]
	last.index = c.index
	s.conns[c.index], s.conns[end] = last, nil
	s.conns = s.conns[:end]
}

// all returns the connections that are open.
func (s *Server) all() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Conn(nil), s.conns...)
}

// serverEnds is how Shutdown ends connections.
var serverEnds = &CloseError{Code: CodeGoingAway, Reason: "the server ends", cause: ErrServerClosed}

// Shutdown refuses further requests with the status 503, ends all connections with the code 1001,
// and waits until their OnClose has returned. CloseTimeout bounds the wait for peers. If ctx is
// done first, Shutdown closes the connections that are left, does not wait for handlers, and
// returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
// socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("websocket: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	lot := s.stop()
	if lot == nil {
		return nil
	}
	for _, c := range s.all() {
		c.shut(serverEnds)
	}
	select {
	case <-s.empty:
	case <-ctx.Done():
		s.Close()
		return context.Cause(ctx)
	}
	s.goroutines.Wait()
	s.log.Flush()
	return lot.Shutdown(ctx)
}

// Close closes the server and all connections at once. It does not wait for handlers. It always
// returns nil.
func (s *Server) Close() error {
	lot := s.stop()
	if lot == nil {
		return nil
	}
	for _, c := range s.all() {
		c.abort(ErrServerClosed)
	}
	s.log.Flush()
	return lot.Close()
}

// stop refuses further connections. It returns nil if there was no request.
func (s *Server) stop() *park.Lot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		if s.open == 0 && s.lot != nil {
			close(s.empty)
		}
	}
	return s.lot
}
