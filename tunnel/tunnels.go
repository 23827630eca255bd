package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/metrics"
)

// Tunnels join pairs of connections, such as those of a proxy's client and its backend: what one
// receives is sent by the other, in both directions. A [Tunnel] in which no bytes move needs no
// goroutine and no buffer.
//
//	var tunnels tunnel.Tunnels
//	for {
//		client, err := listener.Accept()
//		...
//		backend, err := net.Dial("tcp", address)
//		...
//		if err := tunnels.Join(client, backend); err != nil {
//			client.Close()
//			backend.Close()
//		}
//	}
//
// The fields must be set before the first Join, and not be changed after it. The zero value of a
// field is its default, and a negative number means none. Tunnels must not be copied. Its methods
// may be called concurrently, and by OnClose, except for Shutdown, which waits for OnClose.
type Tunnels struct {
	// OnClose, if not nil, is called once for each tunnel that was joined, after its connections
	// were closed. err is nil if both sides have ended their streams, or one of them has whose peer
	// has no CloseWrite method. Otherwise it is what [Tunnel.Abort] was called with, ErrIdle,
	// ErrSlow, ErrHandshake, ErrServerClosed, a *PanicError, or the error of a connection.
	OnClose func(t *Tunnel, err error)

	// IdleTimeout ends a tunnel in which no bytes move, in either direction, for this time. 0 means
	// never. HalfCloseTimeout is the same for a tunnel one of whose sides has ended its stream. 0
	// means IdleTimeout. Both are 0.2 seconds late, and some per cent on a busy machine. Where a
	// connection does not say whether it takes bytes, as on Windows, a write that waits for so long
	// ends the tunnel with ErrSlow.
	IdleTimeout, HalfCloseTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake of a connection that has not had it. 0 means 10
	// seconds. A tunnel has a goroutine during the handshake.
	HandshakeTimeout time.Duration
	// MaxConns bounds the number of tunnels; Join fails with ErrMaxConns beyond it. 0 means no
	// limit.
	MaxConns int
	// UpgradeToHTTP makes ReverseProxy pass on offers to go on with HTTP: h2c, h2, TLS and HTTP in the
	// header Upgrade, and the header HTTP2-Settings. If a backend takes such an offer, further
	// requests are in the tunnel: no handler, middleware or Rewrite sees them, so a client can send
	// what these would refuse, and forge what they set. Without it the offers are dropped, other
	// protocols in the same list stay, and a CONNECT request with such a protocol (RFC 8441) is
	// answered with the status 501.
	UpgradeToHTTP bool

	// OnUpgrade, if not nil, is called when an upgraded connection of a ReverseProxy or a Handler
	// becomes a tunnel, with the response that has upgraded it. It returns the options of the
	// tunnel, of which FromA and FromB have no effect. OnClose follows in any case. It must not wait.
	// A panic leaves the connection to the proxy.
	OnUpgrade func(r *http.Response) Options
	// TrackFrames makes tunnels of WebSocket that a ReverseProxy or a Handler has begun count their
	// frames, so that Tunnel.Farewell sends between two of them. The kernel does not move the bytes
	// through a pipe then.
	TrackFrames bool

	// Lot, if not nil, is the lot that parks the connections. It must be open until the Tunnels
	// have ended. Backend and Unwrap do not apply then, but those of the lot. If it is nil, the
	// Tunnels have one of their own.
	Lot *park.Lot
	// Name, Backend, Unwrap and Logger are as in Config. The Logger also receives panics, and the
	// requests that a ConnectProxy has refused.
	Name    string
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	group       group.Group[*tunnelMember, *park.Lot]
	copied      atomic.Uint64
	forth, back uint64 // bytes of the tunnels that have ended; protected by mu
}

// Stats returns the current counters. Those that a Lot has are those of the tunnels' lot, where
// each side of a tunnel counts.
func (g *Tunnels) Stats() park.Stats {
	g.group.Mu.Lock()
	defer g.group.Mu.Unlock()
	var st park.Stats
	if g.group.Lot != nil {
		st = g.group.Lot.Stats()
	}
	c := g.group.Counts(st.Panics)
	st.Conns, st.QueuedBytes, st.Panics, st.TimedOut = c.Conns, c.QueuedBytes, c.Panics, c.TimedOut
	st.Accepted, st.Refused, st.Rejected, st.CallTime = c.Accepted, c.Refused, c.Rejected, metrics.Histogram{}
	st.Copied, st.BytesForth, st.BytesBack = g.copied.Load(), g.forth, g.back
	for _, t := range g.group.List {
		st.BytesForth += t.a.sent.Load()
		st.BytesBack += t.b.sent.Load()
	}
	return st
}

// Lots returns the lot of the tunnels, for observers such as package debug. It returns none before
// the first Join.
func (g *Tunnels) Lots() []*park.Lot { return g.group.Lots() }

// All returns the tunnels that have begun and not ended when the iteration begins.
func (g *Tunnels) All() iter.Seq[*Tunnel] {
	return func(yield func(*Tunnel) bool) {
		for _, t := range g.group.All() {
			if !yield((*Tunnel)(t)) {
				return
			}
		}
	}
}

// idleTimeout returns the timeout of a tunnel, of which 0 is none.
func (g *Tunnels) idleTimeout(halfClosed bool) time.Duration {
	if halfClosed {
		return serving.Or(g.HalfCloseTimeout, max(g.IdleTimeout, 0))
	}
	return max(g.IdleTimeout, 0)
}

// Options are the options of [Tunnels.JoinWith].
type Options struct {
	// FromA and FromB have what was received from a and b before, for example by a bufio.Reader. It
	// is sent first. The slices must not be changed any more.
	FromA, FromB []byte
	// Value becomes that of the Tunnel.
	Value any
	// Timeout ends the tunnel after so long, as Tunnel.Farewell without bytes and delay does. 0 means
	// never.
	Timeout time.Duration

	upgraded *http.Response // that has upgraded the connections, or nil
}

// Join joins two connections. Each is plain, has TLS, or wraps another one, as [Lot.Park]
// describes. A connection that cannot be parked has a goroutine, and is counted in
// Stats.Unparkable. Join does not wait, and clears the deadlines of both. The tunnel owns the
// connections then, which must not be used any more, and closes them.
//
// What one side receives waits for the other to take it, and nothing more is received then. A busy
// direction has a goroutine if both connections are plain, or have TLS that was taken over from
// crypto/tls. On Linux the kernel moves much between two plain ones through a pipe. When a side has ended its
// stream, and all of it was sent, CloseWrite of the other is called; if there is no such method,
// the tunnel ends. It also ends when both have ended their streams, and when a connection fails.
// Then the other one is reset, so that its peer does not take what it has received for everything;
// a peer of a TLS connection does not get a close_notify.
//
// Join fails with ErrMaxConns, ErrServerClosed, the error of a connection that is closed, and with
// socknotify.ErrInvalid for a field or a connection that makes no sense. The caller still owns the
// connections then.
func (g *Tunnels) Join(a, b net.Conn) error {
	_, err := g.JoinWith(a, b, Options{})
	return err
}

// JoinWith is [Tunnels.Join] with options.
func (g *Tunnels) JoinWith(a, b net.Conn, o Options) (*Tunnel, error) {
	if a == nil || b == nil || sameConn(a, b) {
		return nil, fmt.Errorf("tunnel: join: %w: want two connections", socknotify.ErrInvalid)
	}
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return nil, err
	}
	return g.joinReserved(a, b, o)
}

// joinReserved is JoinWith for a tunnel that was reserved. If it fails, or a method of a connection
// panics, it ends the reservation.
func (g *Tunnels) joinReserved(a, b net.Conn, o Options) (*Tunnel, error) {
	begun := false
	defer func() {
		if !begun {
			g.group.Release()
		}
	}()
	for _, conn := range []net.Conn{a, b} {
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("tunnel: join: %w", err)
		}
	}
	if o.upgraded != nil && g.OnUpgrade != nil {
		own := g.OnUpgrade(o.upgraded)
		o.Value, o.Timeout = own.Value, own.Timeout
	}
	t := g.newTunnel(o)
	begun = true
	t.begin(a, b, o)
	return t, nil
}

// JoinResponse is [Tunnels.JoinWith] with a stream of HTTP/2 as a: that of a CONNECT request that
// package park/http2 serves, which has no connection of its own. It sends the header of the
// response, with the status 200 unless WriteHeader was called. The handler must return, and use w
// and the request's body no more. What the client has sent already is part of the stream.
//
// END_STREAM is the end of a side's stream in each direction. A client that resets its stream, or
// whose connection of HTTP/2 fails, has failed, and where the tunnel resets a, the client gets
// CONNECT_ERROR, or CANCEL for a request with a protocol (RFC 8441). Each side is held back by the
// window of the stream, and all streams of a connection also by that of the connection.
//
// JoinResponse fails with the errors of JoinWith, and with http.ErrNotSupported if w is of another
// server, if the request is not CONNECT or has a length, or if the status that was set refuses it.
// w may have an Unwrap method, as for an http.ResponseController.
func (g *Tunnels) JoinResponse(
	w http.ResponseWriter, b net.Conn, o Options,
) (*Tunnel, error) {
	if w == nil || b == nil {
		return nil, fmt.Errorf("tunnel: join: %w: want a response and a connection", socknotify.ErrInvalid)
	}
	below, err := nethttp.MuxedWriter(w)
	if err == nil {
		err = b.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, fmt.Errorf("tunnel: join: %w", err)
	}
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return nil, err
	}
	t := g.newTunnel(o)
	a := carrier.NewMuxedConn(&t.a)
	if a.Stream, err = below.TakeStream(a, true); err != nil {
		g.group.Release()
		return nil, fmt.Errorf("tunnel: join: %w", err)
	}
	t.begin(a, b, o)
	return t, nil
}

// newTunnel returns a tunnel, which was reserved.
func (g *Tunnels) newTunnel(o Options) *Tunnel {
	t := &Tunnel{Value: o.Value, in: g, moved: g.lot().Now()}
	t.a.of, t.b.of = t, t
	t.a.came = millis(t.moved) + 1<<15 // no short time before the first bytes
	t.b.came = t.a.came
	if r := o.upgraded; g.TrackFrames && r != nil && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		t.more.Store(&tunnelMore{counts: true})
	}
	return t
}

// begin joins the connections.
func (t *Tunnel) begin(a, b net.Conn, o Options) {
	g := t.in
	begun := false
	defer func() {
		if !begun { // the program's hook has called runtime.Goexit
			defer g.group.Release()
			defer b.Close()
			a.Close()
		}
	}()
	err, errB := t.a.init(a, o.FromA), t.b.init(b, o.FromB)
	fresh := false
	for _, s := range []*tunnelSide{&t.a, &t.b} {
		pending, failed := s.end.PendingTLS(g.lot())
		fresh, err = fresh || pending != nil, cmp.Or(err, errB, failed)
	}
	t.a.copying = fresh && err == nil // until shakeHands has returned
	g.group.Accepted.Add(1)
	g.group.Queued.Add(int64(len(o.FromA) + len(o.FromB)))
	begun = true
	if g.group.Add((*tunnelMember)(t)) {
		t.Abort(park.ErrServerClosed) // Close may have missed it
	}
	if o.Timeout > 0 {
		t.endAfter(o.Timeout)
	}
	switch {
	case err != nil:
		t.end(err)
	case fresh:
		g.group.Goroutines.Go(t.shakeHands)
	default:
		t.release(nil, false, nil)
	}
}

// sameConn reports whether a and b are one connection.
func sameConn(a, b net.Conn) bool { return unwrap.Plain(a) && a == b }

// tunnelBatch is how many notifications a worker dequeues at once.
const tunnelBatch = 16

// prepare returns the lot.
func (g *Tunnels) prepare() (lot *park.Lot, shared bool, err error) {
	g.group.LogTo("tunnel: ", g.Name, g.Logger)
	if g.Lot != nil {
		return g.Lot, true, nil
	}
	lot, err = park.New(park.Config{Backend: g.Backend, Unwrap: g.Unwrap, Name: g.Name, Logger: g.Logger})
	if err == nil {
		lot.Engine().SetBatch(tunnelBatch)
	}
	return lot, false, err
}

// lot returns the lot, after the first Join.
func (g *Tunnels) lot() *parking.Lot { return g.group.Lot.Engine() }

// forget ends what reserve and add have begun.
func (g *Tunnels) forget(t *Tunnel) {
	g.group.Mu.Lock()
	g.forth += t.a.sent.Load()
	g.back += t.b.sent.Load()
	g.group.Remove((*tunnelMember)(t))
	g.group.Mu.Unlock()
	g.group.Release()
}

// Shutdown makes Join fail, and waits until all tunnels have ended and OnClose has returned for
// them. Their protocols are not known, so a tunnel counts as running until its peers end it, or
// IdleTimeout does. If ctx is done before, Shutdown ends those that are left with ErrServerClosed,
// and returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
// socknotify.ErrInvalid.
func (g *Tunnels) Shutdown(ctx context.Context) error {
	return g.group.Shutdown(ctx, func(*tunnelMember) {}, abortTunnel)
}

// Close makes Join fail, and ends all tunnels with ErrServerClosed. It does not wait for OnClose.
// It always returns nil.
func (g *Tunnels) Close() error {
	g.group.Close(abortTunnel)
	return nil
}

func abortTunnel(t *tunnelMember) { (*Tunnel)(t).Abort(park.ErrServerClosed) }

// A tunnelMember is a Tunnel as its group sees it.
type tunnelMember Tunnel

func (t *tunnelMember) Place() *int32 { return &t.index }
