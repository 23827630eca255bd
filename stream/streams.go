package stream

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/metrics"
)

// Streams serves connections to which any goroutine may write at any time, such as those of a chat
// or of a queue. An idle [Stream] needs no goroutine and no buffer.
//
//	echo := &stream.Streams{OnInput: func(s *stream.Stream, b []byte) error { return s.Write(b) }}
//	for {
//		conn, err := listener.Accept()
//		...
//		s := new(stream.Stream)
//		if err := echo.Open(s, conn); err != nil {
//			conn.Close()
//			continue
//		}
//		s.Start(nil, nil)
//	}
//
// The fields must be set before the first Open, and not be changed after it. The zero value of a
// field is its default, and a negative number means none. Streams must not be copied. Its methods
// may be called concurrently, and by the functions, except for Shutdown, which waits for them.
//
// A function of the program that panics ends its stream; the panic is logged and counted in
// Stats.Panics.
type Streams struct {
	// OnInput is called with what a peer has sent, for one part at a time of a stream. It may
	// block; the stream then reads no further. b is valid until it returns, and may be changed. If
	// it returns an error, the stream is closed after what is queued. With a nil OnInput a peer has
	// nothing to say: what it sends is discarded, and more than 4 KiB end its stream.
	OnInput func(s *Stream, b []byte) error
	// OnTimer, if not nil, is called when a stream starts, after OnInput, when the time is over
	// that it has returned, and after [Stream.Wake]. It does what is due, such as to send a
	// heartbeat, and returns the time until there is more. 0 and a negative time mean that there is
	// nothing.
	OnTimer func(s *Stream) (next time.Duration)
	// OnShutdown, if not nil, is called by Shutdown for each stream, to end it. Otherwise Shutdown
	// closes it after what is queued.
	OnShutdown func(s *Stream)
	// OnClose, if not nil, is called once for each stream that was started, after it was closed. No
	// other function runs for the stream then. err is what the stream was closed with, or what
	// OnInput has returned; io.EOF if the peer has ended its stream; ErrIdle, ErrSlow, ErrTooLong,
	// ErrHandshake, ErrServerClosed or a *PanicError; and otherwise the error of the connection.
	OnClose func(s *Stream, err error)

	// IdleTimeout ends a stream on which no bytes were sent or received for this time. 0 means
	// never.
	IdleTimeout time.Duration
	// WriteTimeout ends a stream whose peer takes nothing of what is queued for this time. 0 means
	// 10 seconds. HandshakeTimeout bounds the TLS handshake of a connection that has not had it. 0
	// means 10 seconds.
	WriteTimeout, HandshakeTimeout time.Duration

	// MaxConns bounds the number of streams; Open fails with ErrMaxConns beyond it. MaxRunning
	// bounds the number of those whose functions run concurrently, as Config.MaxRunning does. 0
	// means no limit.
	MaxConns, MaxRunning int
	// MaxQueued bounds the memory, in bytes, of what is queued for a stream: each Write counts with
	// its length and 64 bytes. A Write that was begun is queued in any case. 0 means 256 KiB.
	// SlowPolicy says what happens at the bound; the default is SlowClose. The system has buffers
	// of its own besides.
	MaxQueued  int
	SlowPolicy SlowPolicy

	// Lot, if not nil, is the lot that parks the streams, which may have others too. It must be
	// open until the Streams have ended. MaxRunning, Backend and Unwrap do not apply then, but
	// those of the lot. If it is nil, the Streams have one of their own.
	Lot *park.Lot
	// Name is as in Config. TimeCalls makes Stats.CallTime say how long the calls of OnInput take.
	Name      string
	TimeCalls bool
	// Backend, Unwrap and Logger are as in Config. The Logger also receives panics.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	group          group.Group[*streamOwner, *park.Lot]
	maxQueued      int // 0 is no limit
	times          metrics.Recorder
	dropped, calls atomic.Uint64
}

// A SlowPolicy says what happens when more than MaxQueued bytes would be queued for a peer.
type SlowPolicy = serving.SlowPolicy

const (
	// SlowClose closes the stream with ErrSlow. Its peer has lost nothing until then, and learns
	// that it must begin again.
	SlowClose = serving.SlowClose
	// SlowDrop drops what would be queued: Write fails with ErrQueueFull. The stream stays open.
	SlowDrop = serving.SlowDrop
)

// Stats returns the current counters. Those that a Lot has are those of the streams' lot.
func (g *Streams) Stats() park.Stats {
	g.group.Mu.Lock()
	defer g.group.Mu.Unlock()
	var st park.Stats
	if g.group.Lot != nil {
		st = g.group.Lot.Stats()
	}
	c := g.group.Counts(st.Panics)
	st.Conns, st.QueuedBytes, st.Panics, st.TimedOut = c.Conns, c.QueuedBytes, c.Panics, c.TimedOut
	st.Accepted, st.Refused, st.Rejected = c.Accepted, c.Refused, c.Rejected
	st.Dropped, st.Calls, st.CallTime = g.dropped.Load(), g.calls.Load(), metrics.Histogram{}
	g.times.AddTo(&st.CallTime)
	return st
}

// Lots returns the lot of the streams, for observers such as package debug. It returns none before
// the first Open. The Streams own the lot, unless it is the field Lot.
func (g *Streams) Lots() []*park.Lot { return g.group.Lots() }

// All returns the streams that were started and have not ended, in no particular order. Those that
// start while the sequence is used may be missing.
func (g *Streams) All() iter.Seq[*Stream] {
	all := g.group.All()
	return func(yield func(*Stream) bool) {
		for _, o := range all {
			if !yield((*Stream)(o)) {
				return
			}
		}
	}
}

// Open makes s a stream of a connection, which it owns then. The caller may write to it, for
// example a greeting, and must call [Stream.Start]. A connection with TLS may have its handshake
// before it.
//
// Open fails with ErrMaxConns, with ErrServerClosed, and with socknotify.ErrInvalid for a field
// that makes no sense. The caller still owns the connection then.
func (g *Streams) Open(s *Stream, conn net.Conn) error {
	if conn == nil || s == nil {
		return fmt.Errorf("stream: open: %w: nil", socknotify.ErrInvalid)
	}
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return err
	}
	opened := false
	defer func() {
		if !opened { // the program's Unwrap has called runtime.Goexit
			g.group.Release()
		}
	}()
	s.init(g, conn)
	opened = true
	return nil
}

// OpenHTTP is Open with the connection of a request of HTTP/1, which it takes over from net/http or
// from an HTTPServer. The caller writes the answer, and passes to [Stream.Start] what was received
// after the request. If OpenHTTP fails, the caller answers by w. It fails with the errors of Open,
// with those of http.ResponseController.Hijack, and with ErrBodyUnread if the request has a body
// that was not read to its end.
func (g *Streams) OpenHTTP(s *Stream, w http.ResponseWriter) (received []byte, err error) {
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return nil, err
	}
	var conn net.Conn
	opened := false
	defer func() {
		if opened { // not after a panic of a Hijack method either
			return
		}
		g.group.Release()
		if conn != nil {
			conn.Close()
		}
	}()
	if conn, received, err = nethttp.TakeOver(w); err != nil {
		return nil, fmt.Errorf("stream: hijack: %w", err)
	}
	s.init(g, conn)
	opened = true
	return received, nil
}

// OpenResponse is Open with the response to a request of HTTP/2 that package park/http2 serves. It
// sends the header, with the status 200 unless WriteHeader was called, and the stream is what
// follows. For a CONNECT request it is also what the peer sends, until it ends its side or resets
// the stream. For others the peer has nothing to say, so OnInput is not called. The caller must
// call [Stream.Start], and the handler must return and use w no more. Its goroutine is not needed
// then.
//
// OpenResponse fails with the errors of Open, and with http.ErrNotSupported if w is of another
// server, if the response is one without a body or of a declared length, if a CONNECT request is
// refused or has a length, and if another request was not received whole. w may have an Unwrap
// method, as for an http.ResponseController.
func (g *Streams) OpenResponse(s *Stream, w http.ResponseWriter) error {
	below, err := nethttp.MuxedWriter(w)
	if err != nil {
		return fmt.Errorf("stream: open: %w", err)
	}
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return err
	}
	c := carrier.NewMuxedConn(s.owner())
	s.in, s.end = g, carrier.Endpoint{Conn: c, Kind: carrier.MuxedKind}
	if c.Stream, err = below.TakeStream(c, false); err != nil {
		s.in, s.end = nil, carrier.Endpoint{}
		g.group.Release()
		return fmt.Errorf("stream: open: %w", err)
	}
	g.group.Accepted.Add(1)
	s.moved = g.lot().Now()
	return nil
}

// prepare checks the fields, and returns the lot.
func (g *Streams) prepare() (lot *park.Lot, shared bool, err error) {
	if !g.SlowPolicy.Valid() {
		return nil, false, fmt.Errorf("stream: open: %w: SlowPolicy is unknown", socknotify.ErrInvalid)
	}
	g.maxQueued = serving.Or(g.MaxQueued, 256<<10)
	g.group.LogTo("stream: ", g.Name, g.Logger)
	if g.Lot != nil {
		return g.Lot, true, nil
	}
	lot, err = park.New(park.Config{MaxRunning: g.MaxRunning, Backend: g.Backend, Unwrap: g.Unwrap, Name: g.Name,
		Logger: g.Logger})
	return lot, false, err
}

// lot returns the lot, after the first Open.
func (g *Streams) lot() *parking.Lot { return g.group.Lot.Engine() }

// Shutdown makes Open fail, ends all streams by OnShutdown, and waits until their OnClose has
// returned. If ctx is done first, Shutdown aborts the streams that are left, does not wait for
// their functions, and returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails
// with socknotify.ErrInvalid.
func (g *Streams) Shutdown(ctx context.Context) error {
	return g.group.Shutdown(ctx, func(o *streamOwner) { g.endStream((*Stream)(o)) }, abortStream)
}

// endStream ends a stream for Shutdown.
func (g *Streams) endStream(s *Stream) {
	if g.OnShutdown == nil {
		s.Close(park.ErrServerClosed)
		return
	}
	err := group.ErrGoexit
	defer func() {
		if err != nil {
			s.Close(err)
		}
	}()
	err = g.group.Log.Call(s.end.Conn, func() { g.OnShutdown(s) })
}

// Close makes Open fail, and aborts all streams. It does not wait for functions. It always returns
// nil.
func (g *Streams) Close() error {
	g.group.Close(abortStream)
	return nil
}

func abortStream(o *streamOwner) { (*Stream)(o).Abort(park.ErrServerClosed) }
