package websocket

import (
	"compress/flate"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/clock"
	"github.com/socknotify/socknotify/park"
)

// A Server is an http.Handler that upgrades requests to WebSocket connections, and the server of these connections.
//
// The fields must be set before the first request, and not be changed after it. OnMessage is required. A Server must not be
// copied. Its methods may be called concurrently, and by the handlers, except for Shutdown, which waits for them.
//
// A panic of a handler is logged, and ends its connection with the code 1011.
type Server struct {
	// OnOpen, if not nil, is called after the handshake and before the first message. r is the request; r and its body must
	// not be used after OnOpen has returned. An error ends the connection, as one of OnMessage does. The connection gets
	// broadcasts already before the call.
	OnOpen func(c *Conn, r *http.Request) error
	// OnMessage is called for each message, for one at a time of a connection. It may block; the connection then reads no
	// further. payload is valid until OnMessage returns, and may be changed. If OnMessage returns an error, the connection
	// ends: with the code of a *CloseError, and otherwise with 1011.
	OnMessage func(c *Conn, kind Kind, payload []byte) error
	// OnPong, if not nil, is called for each pong frame. payload is valid until it returns.
	OnPong func(c *Conn, payload []byte)
	// OnClose, if not nil, is called once for each connection that Upgrade has returned or OnOpen was called for, after it
	// was closed. No other handler runs for the connection then. err is
	//
	//   - a *CloseError, if a close frame was sent or received. Its code is CodeAbnormal if the peer closed the connection
	//     without one;
	//   - what a handler has returned;
	//   - ErrTimeout, ErrSlow, or ErrServerClosed;
	//   - otherwise the error of the connection.
	OnClose func(c *Conn, err error)

	// CheckOrigin reports whether a request may be upgraded. The default allows requests without an Origin header, which
	// are not from browsers, and requests whose Origin has the host and port of the request's Host header. Browsers let
	// every page connect to every server, with the user's cookies, so a server that allows all origins must not trust
	// cookies.
	CheckOrigin func(r *http.Request) bool
	// Subprotocols are the subprotocols that the server speaks, the preferred one first. Conn.Subprotocol returns the one
	// that was chosen.
	Subprotocols []string

	// MaxMessage bounds the bytes of a message, after decompression, and MaxFrame those of a frame. A larger one ends the
	// connection with the code 1009. 0 means 1 MiB for MaxMessage, and MaxMessage for MaxFrame.
	MaxMessage, MaxFrame int
	// MaxQueue bounds the memory, in bytes, of what is queued for a connection whose peer reads too slowly: a message counts
	// with its length and 64 bytes. A message that was begun is queued in any case. 0 means 256 KiB. Slow says what happens
	// at the bound. Of the answers to pings only the latest waits. The system has buffers of its own besides, of some
	// megabytes with Linux's settings.
	MaxQueue int
	Slow     SlowPolicy
	// MaxConns bounds the number of connections; further requests are answered with the status 503. 0 means no limit.
	MaxConns int
	// MaxRunning bounds the number of connections whose handlers run concurrently, as park.Config.MaxRunning does. 0
	// means no limit.
	MaxRunning int

	// Compression is the level, 1 to 9 as in compress/flate, with which messages are compressed for peers that offer
	// permessage-deflate. 0 means that the extension is not used. A compressor needs about a megabyte while it compresses
	// a message; connections need nothing. Messages of fewer than CompressMin bytes are sent as they are; 0 means 512.
	Compression int
	CompressMin int

	// PingInterval is the time after which a connection from which nothing was received is pinged, and PongTimeout the
	// time after which a connection is closed if nothing is received after the ping. 0 means 30 and 10 seconds; a negative
	// PingInterval means no pings, and the end of a peer that vanishes silently is then not noticed.
	PingInterval, PongTimeout time.Duration
	// MaxPings bounds the pings and pongs that a peer sends in a second. A connection whose peer
	// sends more ends with the code 1008. 0 means no limit.
	MaxPings int
	// IdleTimeout ends a connection that has sent no message for this time, with the code 1001. 0 means never.
	IdleTimeout time.Duration
	// MessageTimeout ends a connection if a message is incomplete for this time after its first byte, with the code 1008.
	// 0 means 10 seconds, a negative value no timeout.
	MessageTimeout time.Duration
	// WriteTimeout closes a connection whose peer takes nothing of what is queued for this time. 0 means 10 seconds, a
	// negative value no timeout.
	WriteTimeout time.Duration
	// CloseTimeout bounds the time from the close frame of this side to the end of the peer's
	// stream, which follows its close frame. After that time, or after 16 MiB that are not handled
	// any more, the connection is closed in any case. 0 means 5 seconds.
	CloseTimeout time.Duration

	// Backend, Unwrap and Logger are as in park.Config. The Logger also gets the panics of handlers.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	clock    clock.Clock
	start    time.Time
	limit    limits
	deflater *deflater
	// goroutines write for connections whose handlers run, and read from connections that cannot be parked.
	goroutines sync.WaitGroup

	queued  atomic.Int64
	dropped atomic.Uint64
	slow    atomic.Uint64

	mu      sync.Mutex
	lot     *park.Lot
	failed  error
	conns   []*Conn
	open    int // upgrades under way, and connections whose OnClose has not returned
	closing bool
	empty   chan struct{} // closed when closing is set and open is 0
}

// A SlowPolicy says what happens when more than MaxQueue bytes would be queued for a connection.
type SlowPolicy uint8

const (
	// SlowClose closes the connection. Its peer has lost no message until then, and learns that it must begin again.
	SlowClose SlowPolicy = iota
	// SlowDrop drops the message. The connection stays open.
	SlowDrop
)

// Stats holds counters of a Server.
type Stats struct {
	park.Stats        // of the lot
	Conns      int    // connections that are open
	Queued     int    // bytes that wait for slow peers; a prepared message counts for each connection
	Dropped    uint64 // messages that were dropped because of SlowDrop
	Slow       uint64 // connections that were closed because of SlowClose or WriteTimeout
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	st := Stats{Queued: int(s.queued.Load()), Dropped: s.dropped.Load(), Slow: s.slow.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns = s.open
	if s.lot != nil {
		st.Stats = s.lot.Stats()
	}
	return st
}

// Lot returns the server's lot for observation, for example of its port by package debug. It returns nil before the first
// request.
func (s *Server) Lot() *park.Lot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lot
}

func orDefault[N int | time.Duration](n, otherwise N) N {
	if n == 0 {
		return otherwise
	}
	return n
}

const defaultTimeout = 10 * time.Second

func (s *Server) maxQueue() int                 { return orDefault(s.MaxQueue, 256<<10) }
func (s *Server) pingInterval() time.Duration   { return orDefault(s.PingInterval, 30*time.Second) }
func (s *Server) pongTimeout() time.Duration    { return orDefault(s.PongTimeout, defaultTimeout) }
func (s *Server) messageTimeout() time.Duration { return orDefault(s.MessageTimeout, defaultTimeout) }
func (s *Server) writeTimeout() time.Duration   { return orDefault(s.WriteTimeout, defaultTimeout) }
func (s *Server) closeTimeout() time.Duration   { return orDefault(s.CloseTimeout, 5*time.Second) }

// now returns the time since the server's start.
func (s *Server) now() time.Duration { return s.clock.Since(s.start) }

// begin starts the server at its first request, and counts an upgrade, unless the server is closed or full. A nil error
// must be followed by done.
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
		return errFull
	}
	s.open++
	return nil
}

var errFull = fmt.Errorf("websocket: upgrade: too many connections")

// prepare checks the fields and makes the lot.
func (s *Server) prepare() error {
	invalid := func(field string) error {
		return fmt.Errorf("websocket: %w: %s", socknotify.ErrInvalid, field)
	}
	switch {
	case s.OnMessage == nil:
		return invalid("OnMessage is nil")
	case s.MaxMessage < 0 || s.MaxFrame < 0 || s.MaxQueue < 0 || s.MaxConns < 0 || s.CompressMin < 0:
		return invalid("a limit is negative")
	case s.PongTimeout < 0 || s.IdleTimeout < 0 || s.CloseTimeout < 0:
		return invalid("PongTimeout, IdleTimeout or CloseTimeout is negative")
	case s.Compression < 0 || s.Compression > flate.BestCompression:
		return invalid("Compression is not 0 to 9")
	case s.Slow > SlowDrop:
		return invalid("unknown Slow")
	}
	for _, p := range s.Subprotocols {
		if !isToken(p) {
			return invalid(fmt.Sprintf("subprotocol %q is not a token", p))
		}
	}
	lot, err := park.New(park.Config{MaxRunning: s.MaxRunning, Backend: s.Backend, Unwrap: s.Unwrap, Logger: s.Logger})
	if err != nil {
		return err
	}
	s.lot, s.clock, s.empty = lot, clock.Current(), make(chan struct{})
	s.start = s.clock.Now()
	s.limit.message = uint64(orDefault(s.MaxMessage, 1<<20))
	s.limit.frame = min(s.limit.message, uint64(orDefault(s.MaxFrame, int(s.limit.message))))
	if s.Compression > 0 {
		s.deflater = &deflater{level: s.Compression}
	}
	return nil
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

const serverEnds = "the server ends"

// Shutdown refuses further requests with the status 503, ends all connections with the code 1001, and waits until their
// OnClose has returned. CloseTimeout bounds the wait for peers. If ctx is done first, Shutdown closes the connections that
// are left, does not wait for handlers, and returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
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
		c.Close(CodeGoingAway, serverEnds)
	}
	select {
	case <-s.empty:
	case <-ctx.Done():
		s.Close()
		return context.Cause(ctx)
	}
	s.goroutines.Wait()
	return lot.Shutdown(ctx)
}

// Close closes the server and all connections at once. It does not wait for handlers. It always returns nil.
func (s *Server) Close() error {
	lot := s.stop()
	if lot == nil {
		return nil
	}
	for _, c := range s.all() {
		c.abort(ErrServerClosed)
	}
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

// log writes to the server's logger.
func (s *Server) log(level slog.Level, message string, args ...any) {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(context.Background(), level, message, args...)
}
