package park

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/unwrap"
	"github.com/socknotify/socknotify/metrics"
)

// Tunnels join pairs of connections, such as those of a proxy's client and its backend: what one
// receives is sent by the other, in both directions. A [Tunnel] in which no bytes move needs no
// goroutine and no buffer.
//
//	var tunnels park.Tunnels
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
	// means IdleTimeout. Both are at most 0.2 seconds late. Where a connection does not say whether
	// it takes bytes, as on Windows, a write that waits for so long ends the tunnel with ErrSlow.
	IdleTimeout, HalfCloseTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake of a connection that has not had it. 0 means 10
	// seconds. A tunnel has a goroutine during the handshake.
	HandshakeTimeout time.Duration
	// MaxConns bounds the number of tunnels; Join fails with ErrMaxConns beyond it. 0 means no
	// limit.
	MaxConns int

	// Lot, if not nil, is the lot that parks the connections. It must be open until the Tunnels
	// have ended. Backend and Unwrap do not apply then, but those of the lot. If it is nil, the
	// Tunnels have one of their own.
	Lot *Lot
	// Name, Backend, Unwrap and Logger are as in Config. The Logger also receives panics.
	Name    string
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	log        serving.Log
	goroutines sync.WaitGroup

	queued                      atomic.Int64
	accepted, refused, rejected atomic.Uint64
	idle, slow, late, copied    atomic.Uint64

	mu      sync.Mutex
	lot     *Lot
	list    []*Tunnel
	forth   uint64 // bytes of the tunnels that have ended
	back    uint64
	closing bool
	empty   chan struct{} // closed when closing is set and list is empty
}

// Stats returns the current counters. Those that a Lot has are those of the tunnels' lot, where
// each side of a tunnel counts.
func (g *Tunnels) Stats() (st Stats) {
	g.mu.Lock()
	if g.lot != nil {
		st = g.lot.Stats()
	}
	if g.Lot != nil {
		st.Panics = 0 // they may be of others
	}
	st.Conns = len(g.list)
	st.BytesForth, st.BytesBack = g.forth, g.back
	for _, t := range g.list {
		st.BytesForth += t.a.sent.Load()
		st.BytesBack += t.b.sent.Load()
	}
	g.mu.Unlock()
	st.QueuedBytes = g.queued.Load()
	st.Accepted, st.Refused, st.Rejected = g.accepted.Load(), g.refused.Load(), g.rejected.Load()
	st.Copied, st.Panics = g.copied.Load(), st.Panics+g.log.Panics()
	st.TimedOut = metrics.TimedOut{Idle: g.idle.Load(), Slow: g.slow.Load(),
		Handshake: g.late.Load()}
	st.CallTime = metrics.Histogram{}
	return st
}

// Lots returns the lot of the tunnels, for observers such as package debug. It returns none before
// the first Join.
func (g *Tunnels) Lots() []*Lot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lot == nil {
		return nil
	}
	return []*Lot{g.lot}
}

// idleTimeout returns the timeout of a tunnel, of which 0 is none.
func (g *Tunnels) idleTimeout(halfClosed bool) time.Duration {
	if halfClosed {
		return serving.Or(g.HalfCloseTimeout, max(g.IdleTimeout, 0))
	}
	return max(g.IdleTimeout, 0)
}

// TunnelOptions are the options of [Tunnels.JoinWith].
type TunnelOptions struct {
	// FromA and FromB have what was received from a and b before, for example by a bufio.Reader. It
	// is sent first. The slices must not be changed any more.
	FromA, FromB []byte
	// Value becomes that of the Tunnel.
	Value any
}

// Join joins two connections. Each is plain, has TLS, or wraps another one, as [Lot.Park]
// describes. A connection that cannot be parked has a goroutine, and is counted in
// Stats.Unparkable. Join does not wait, and clears the deadlines of both. The tunnel owns the
// connections then, which must not be used any more, and closes them.
//
// What one side receives waits for the other to take it, and nothing more is received then. When a
// side has ended its stream, and all of it was sent, CloseWrite of the other is called; if there is
// no such method, the tunnel ends. It also ends when both have ended their streams, and when a
// connection fails. Then the other one is reset, so that its peer does not take what it has
// received for everything; a peer of a TLS connection does not get a close_notify.
//
// Join fails with ErrMaxConns, ErrServerClosed, the error of a connection that is closed, and with
// socknotify.ErrInvalid for a field or a connection that makes no sense. The caller still owns the
// connections then.
func (g *Tunnels) Join(a, b net.Conn) error {
	_, err := g.JoinWith(a, b, TunnelOptions{})
	return err
}

// JoinWith is [Tunnels.Join] with options.
func (g *Tunnels) JoinWith(a, b net.Conn, o TunnelOptions) (*Tunnel, error) {
	if a == nil || b == nil || sameConn(a, b) {
		return nil, fmt.Errorf("park: join: %w: want two connections", socknotify.ErrInvalid)
	}
	for _, conn := range []net.Conn{a, b} {
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("park: join: %w", err)
		}
	}
	lot, err := g.open()
	if err != nil {
		return nil, err
	}
	t := &Tunnel{Value: o.Value, in: g, moved: lot.now()}
	t.a.init(t, a, o.FromA)
	t.b.init(t, b, o.FromB)
	fresh := t.a.pendingTLS() != nil || t.b.pendingTLS() != nil
	t.a.copying = fresh // until shakeHands has returned
	if err := g.add(t, o); err != nil {
		return nil, err
	}
	if fresh {
		g.goroutines.Go(t.shakeHands)
	} else {
		t.release(nil, false, nil)
	}
	return t, nil
}

// sameConn reports whether a and b are one connection.
func sameConn(a, b net.Conn) bool { return unwrap.Plain(a) && a == b }

// open returns the lot. The first call makes it.
func (g *Tunnels) open() (*Lot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return nil, ErrServerClosed
	}
	if g.lot == nil {
		if err := g.prepare(); err != nil {
			return nil, err
		}
	}
	return g.lot, nil
}

// add adds a tunnel. remove must follow.
func (g *Tunnels) add(t *Tunnel, o TunnelOptions) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closing:
		return ErrServerClosed
	case g.MaxConns > 0 && len(g.list) >= g.MaxConns:
		g.refused.Add(1)
		return ErrMaxConns
	}
	g.accepted.Add(1)
	g.queued.Add(int64(len(o.FromA) + len(o.FromB)))
	t.index = int32(len(g.list))
	g.list = append(g.list, t)
	return nil
}

// prepare makes the lot. The caller holds g.mu.
func (g *Tunnels) prepare() error {
	lot := g.Lot
	if lot == nil {
		var err error
		lot, err = New(Config{Backend: g.Backend, Unwrap: g.Unwrap, Name: g.Name, Logger: g.Logger})
		if err != nil {
			return err
		}
	}
	g.log.Prefix, g.log.Name, g.log.Logger = "park: ", g.Name, func() *slog.Logger { return g.Logger }
	g.lot, g.empty = lot, make(chan struct{})
	return nil
}

// remove removes a tunnel that has ended.
func (g *Tunnels) remove(t *Tunnel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := len(g.list) - 1
	last := g.list[end]
	last.index = t.index
	g.list[t.index], g.list[end] = last, nil
	g.forth += t.a.sent.Load()
	g.back += t.b.sent.Load()
	if g.list = g.list[:end]; end == 0 && g.closing {
		close(g.empty)
	}
}

// Shutdown makes Join fail, and waits until all tunnels have ended and OnClose has returned for
// them. Their protocols are not known, so a tunnel counts as running until its peers end it, or
// IdleTimeout does. If ctx is done before, Shutdown ends those that are left with ErrServerClosed,
// and returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
// socknotify.ErrInvalid.
func (g *Tunnels) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("park: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	lot := g.stop()
	if lot == nil {
		return nil
	}
	select {
	case <-g.empty:
	case <-ctx.Done():
		g.Close()
		return context.Cause(ctx)
	}
	g.goroutines.Wait()
	g.log.Flush()
	if lot == g.Lot {
		return nil
	}
	return lot.Shutdown(ctx)
}

// Close makes Join fail, and ends all tunnels with ErrServerClosed. It does not wait for OnClose.
// It always returns nil.
func (g *Tunnels) Close() error {
	lot := g.stop()
	if lot == nil {
		return nil
	}
	g.mu.Lock()
	left := slices.Clone(g.list)
	g.mu.Unlock()
	for _, t := range left {
		t.Abort(ErrServerClosed)
	}
	g.log.Flush()
	if lot != g.Lot {
		lot.Close()
	}
	return nil
}

// stop makes Join fail. It returns nil if there was no tunnel.
func (g *Tunnels) stop() *Lot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closing {
		g.closing = true
		if len(g.list) == 0 && g.lot != nil {
			close(g.empty)
		}
	}
	return g.lot
}
