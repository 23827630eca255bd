package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A Tunnel is two connections that [Tunnels.Join] has joined. Its methods may be called
// concurrently.
type Tunnel struct {
	// Value is that of the Options.
	Value any

	in *Tunnels

	mu    sync.Mutex
	moved time.Duration  // when bytes were last sent, since the lot's start
	f     func(net.Conn) // for the lot; nil if both sides are plain
	index int32          // see member
	life  tunnelLife

	more atomic.Pointer[tunnelMore] // nil for most; changed under mu
	a, b tunnelSide
}

// A tunnelMore is what few tunnels have, and all that have ended.
type tunnelMore struct {
	cause  error       // for OnClose; protected by mu
	timer  clock.Timer // ends the tunnel; nil without a timeout; protected by mu
	counts bool        // frames are counted; not changed once the tunnel has begun
	frames [2]frames   // of the directions from a and from b
	last   *lastBytes  // of a farewell while directions are copied; nil without one; protected by mu
}

// extra returns t.more, which it makes. The caller holds t.mu.
func (t *Tunnel) extra() *tunnelMore {
	m := t.more.Load()
	if m == nil {
		m = new(tunnelMore)
		t.more.Store(m)
	}
	return m
}

// A tunnelLife is where a tunnel is between Join and OnClose.
type tunnelLife uint8

const (
	tunnelOpen    tunnelLife = iota
	tunnelClosing            // it has a cause, and a goroutine closes the connections
	tunnelClosed             // they are closed; the last copying goroutine ends the tunnel
	tunnelEnded
)

// A tunnelSide is a connection of a tunnel, and the direction that begins there: its bytes go to
// the other side, its peer.
//
// A goroutine copies a direction: it sets copying, moves bytes until the source is empty or the
// peer takes no more, and clears copying again. Then each side that is at rest is parked for what
// would move bytes:
//
//   - for reading, if its own direction is open and has no rest;
//   - for writing, if the direction of its peer has a rest, which is for this side;
//   - for a failure, if it is not copied, and parking for reading or writing would not show it.
//
// So one side or both are parked while no goroutine copies, and what wakes a side says which
// directions to copy. Both directions may be copied at once.
type tunnelSide struct {
	of   *Tunnel
	end  carrier.Endpoint
	sent atomic.Uint64 // bytes of this direction that the peer has taken

	// These are used by the goroutine that copies, and under the lock if none does.
	rest  *tunnelRest // nil if there is none
	eof   bool        // this side has ended its stream
	parts bool        // the peer has had its farewell: what this side sends is dropped

	// These are used under the lock.
	done    bool // its end is passed to the peer, or was
	copying bool
	armed   parking.Awaited // what the side is parked for; 0 if it is not
	alone   bool            // it cannot be parked: goroutines copy from it and to it

	// came is when the bytes of this direction came that isBrisk was asked of. It is used as rest is, and
	// has the size of what is left of a word.
	came uint16
}

// Conns returns the connections, for their addresses and settings. The caller must not read, write,
// park or close them.
func (t *Tunnel) Conns() (a, b net.Conn) { return t.a.end.Conn, t.b.end.Conn }

// Bytes returns how many bytes a has sent that b has taken, and how many b has sent that a has.
func (t *Tunnel) Bytes() (forth, back uint64) { return t.a.sent.Load(), t.b.sent.Load() }

// Idle returns the time since bytes were last moved.
func (t *Tunnel) Idle() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.in.lot().Now() - t.moved
}

// Abort ends the tunnel: both connections are reset, and what was not sent is lost. OnClose gets
// the cause, which is net.ErrClosed if it is nil. Abort does nothing if the tunnel has ended.
func (t *Tunnel) Abort(cause error) {
	t.end(cmp.Or(cause, net.ErrClosed))
}

// shakeHands performs the TLS handshakes of new connections, and begins the tunnel.
func (t *Tunnel) shakeHands() {
	err := error(group.ErrGoexit)
	defer func() { t.release(&t.a, false, err) }()
	err = t.in.group.Log.Guard(t.a.end.Conn, func() error {
		for _, s := range [2]*tunnelSide{&t.a, &t.b} {
			if err := s.shakeHands(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Run is the function of a parked side.
func (s *tunnelSide) Run() {
	t, p, c := s.of, s.peer(), s.Carrier()
	if c.MayWait() || p.Carrier().MayWait() {
		t.in.lot().Relieve()
	}
	quiet, failure := c.Quiet(), c.Failure()
	t.mu.Lock()
	s.armed = parking.AwaitNothing
	open := t.life == tunnelOpen && failure == nil
	in := open && !p.copying && p.rest != nil
	out := open && !s.copying && !s.eof && s.rest == nil
	s.copying, p.copying = s.copying || out, p.copying || in
	t.mu.Unlock()
	switch {
	case failure != nil:
		t.release(nil, false, fmt.Errorf("tunnel: %w", failure))
		return
	case in && out && c.MayWait(): // the write to s may wait
		t.in.group.Goroutines.Go(func() { p.copy(copyRest) })
	case in:
		p.copy(copyRest)
	}
	switch {
	case out && quiet:
		s.copy(copyQuietly)
	case out:
		s.copy(copyReady)
	case !in:
		t.release(nil, false, nil)
	}
}

// release ends the copying of the direction of s, if s is not nil, and parks the sides for what the
// tunnel waits for. err ends the tunnel, unless it says that the side cannot be parked.
func (t *Tunnel) release(s *tunnelSide, moved bool, err error) {
	returned := false
	defer func() {
		if !returned { // a method of a connection, or the program's hook, has called runtime.Goexit
			t.end(group.ErrGoexit)
		}
	}()
	open, end, last := t.rest(s, moved, err)
	returned = true
	switch {
	case !open:
		t.finish()
	case end != nil:
		t.close(end)
	case last != nil:
		s.part(last)
	}
}

// rest is release as far as the tunnel's lock is needed. It reports whether the tunnel was open, and
// returns how it ends now, or nil, and last bytes that were kept for the peer of s.
func (t *Tunnel) rest(s *tunnelSide, moved bool, err error) (open bool, end *tunnelEnding, last []byte) {
	lot := t.in.lot()
	t.mu.Lock()
	defer t.mu.Unlock()
	if moved {
		t.moved = lot.Now()
	}
	if unwrap.IsUnfit(err) {
		lot.Refuse(s.end.Conn, fmt.Errorf("park: %w: %w", parking.ErrUnparkable, err))
		s.alone, err = true, nil
	}
	if s != nil {
		s.copying = false
		last = s.takeLast()
		if p := s.peer(); s.done && p.armed != parking.AwaitNothing && t.in.HalfCloseTimeout > 0 {
			p.Carrier().Wake(p) // it was parked for IdleTimeout
		}
	}
	open = t.life == tunnelOpen
	switch {
	case !open:
		return false, nil, nil
	case err == nil:
		err = t.arm()
	case lot.IsClosing():
		err = park.ErrServerClosed
	}
	if err != nil {
		end = t.ending(err)
	}
	return true, end, last
}

// errTunnelOver is the cause of a tunnel whose sides have ended their streams.
var errTunnelOver = errors.New("tunnel: the tunnel is over")

// arm parks the sides that are at rest. An error ends the tunnel. The caller holds t.mu.
func (t *Tunnel) arm() error {
	g, left := t.in, time.Duration(-1)
	if t.a.over() && t.b.over() {
		return errTunnelOver
	}
	if d := g.idleTimeout(t.halfClosed()); d > 0 {
		switch left = durations.Add(t.moved, d) - g.lot().Now(); {
		case left > 0:
		case t.a.copies() || t.b.copies():
			return nil // which may be moving bytes, and arms when it has looked
		default:
			return park.ErrIdle
		}
	}
	if err := t.a.arm(left); err != nil {
		return err
	}
	return t.b.arm(left)
}

// over reports whether the direction is done, and nothing is read from s any more. The caller holds
// the tunnel's lock.
func (s *tunnelSide) over() bool { return !s.copying && s.done && (s.eof || !s.parts) }

// copies reports whether a goroutine copies the direction that will release it within the idle
// timeout, as one that waits for a side that cannot be parked does not. The caller holds t.mu.
func (s *tunnelSide) copies() bool { return s.copying && !s.alone }

// halfClosed reports whether one direction is done. The caller holds t.mu.
func (t *Tunnel) halfClosed() bool {
	return t.a.done || t.b.done
}

// arm parks a side for at most the time left, unless that is negative. The caller holds the
// tunnel's lock, so the side's function waits until it has returned.
func (s *tunnelSide) arm(left time.Duration) error {
	p, c, want := s.peer(), s.Carrier(), parking.AwaitNothing
	if !s.copying && !s.eof && s.rest == nil {
		want |= parking.AwaitRead
	}
	if !p.copying && p.rest != nil {
		want |= parking.AwaitWrite
	}
	if !s.copying && c.NotifiesOnce() {
		want |= parking.AwaitReset
	}
	switch {
	case s.armed|want == s.armed:
		return nil
	case s.alone:
		s.copyAlone(want)
		return nil
	case s.armed != parking.AwaitNothing:
		s.armed = c.Await(s, s.armed, want)
		return nil
	}
	s.armed = want
	err := s.of.in.group.Log.Guard(s.end.Conn, func() error { return c.Park(s, want, left) })
	if err == nil {
		return nil
	}
	s.armed = parking.AwaitNothing
	switch {
	case errors.Is(err, parking.ErrUnparkable):
		s.alone = true
		s.copyAlone(want)
		return nil
	case errors.Is(err, parking.ErrClosed):
		return park.ErrServerClosed
	}
	return err
}

// end ends the tunnel with a cause, unless it has one.
func (t *Tunnel) end(cause error) {
	t.mu.Lock()
	end := t.ending(cause)
	t.mu.Unlock()
	if end != nil {
		t.close(end)
	}
}

// A tunnelEnding says how the connections of a tunnel are closed.
type tunnelEnding struct {
	a, b           carrier.Carrier
	armedA, armedB bool
	reset          bool
}

// ending gives the tunnel a cause, and returns how it ends, or nil if it has a cause. A tunnel that
// is over is closed, and so is an idle one that holds no bytes. Others are reset. The caller holds
// t.mu, and calls close without it.
func (t *Tunnel) ending(cause error) *tunnelEnding {
	if t.life != tunnelOpen {
		return nil
	}
	t.life = tunnelClosing
	if cause != errTunnelOver {
		t.extra().cause = cause
	}
	switch cause {
	case park.ErrIdle:
		t.in.group.Idle.Add(1)
	case park.ErrSlow:
		t.in.group.Slow.Add(1)
	}
	calm := !t.a.copying && !t.b.copying && t.a.rest == nil && t.b.rest == nil
	return &tunnelEnding{
		a: t.a.Carrier(), armedA: t.a.armed != parking.AwaitNothing,
		b: t.b.Carrier(), armedB: t.b.armed != parking.AwaitNothing,
		reset: cause != errTunnelOver && (cause != park.ErrIdle || !calm),
	}
}

// close closes the connections.
func (t *Tunnel) close(end *tunnelEnding) {
	t.in.lot().Relieve()
	t.a.close(end.a, end.armedA, end.reset)
	t.b.close(end.b, end.armedB, end.reset)
	t.mu.Lock()
	t.life = tunnelClosed
	t.mu.Unlock()
	t.finish()
}

// finish calls OnClose, if the connections are closed and no goroutine copies.
func (t *Tunnel) finish() {
	g := t.in
	t.mu.Lock()
	last := t.life == tunnelClosed && !t.a.copying && !t.b.copying
	if last {
		t.life = tunnelEnded
		t.a.dropRest()
		t.b.dropRest()
		if m := t.more.Load(); m != nil && m.timer != nil {
			m.timer.Stop()
		}
	}
	t.mu.Unlock()
	if !last {
		return
	}
	defer g.forget(t)
	if g.OnClose != nil {
		g.lot().Relieve()
		var cause error
		if m := t.more.Load(); m != nil {
			cause = m.cause
		}
		g.group.Log.Call(t.a.end.Conn, func() { g.OnClose(t, cause) })
	}
}

// init makes conn the connection of a side. received is sent to its peer first. It fails with a
// *PanicError of the program's hook.
func (s *tunnelSide) init(conn net.Conn, received []byte) error {
	if len(received) > 0 {
		s.rest = &tunnelRest{bytes: received}
	}
	if c, ok := conn.(*carrier.MuxedConn); ok {
		s.end.Conn, s.end.Kind = c, carrier.MuxedKind
		return nil
	}
	_, err := s.end.Bind(s.of.in.lot(), conn)
	s.end.BindRecords()
	if s.end.Kind == carrier.WrappedKind && s.of.f == nil {
		s.of.f = s.of.run
	}
	return err
}

// run is the function of a side that is not plain.
func (t *Tunnel) run(conn net.Conn) {
	if conn == t.a.end.Conn {
		t.a.Run()
	} else {
		t.b.Run()
	}
}

func (s *tunnelSide) Carrier() carrier.Carrier { return s.end.Carrier() }
func (s *tunnelSide) Lot() *parking.Lot        { return s.of.in.lot() }
func (s *tunnelSide) Function() func(net.Conn) { return s.of.f }

func (s *tunnelSide) Parked() (net.Conn, func(net.Conn)) {
	return carrier.PlainConn[*tunnelSide]{Owner: s}, carrier.RunPlain[*tunnelSide]
}

// peer returns the other side.
func (s *tunnelSide) peer() *tunnelSide {
	if t := s.of; s == &t.a {
		return &t.b
	}
	return &s.of.a
}

func (s *tunnelSide) shakeHands() error {
	g := s.of.in
	t, err := s.end.PendingTLS(g.lot())
	if err == nil && t != nil {
		err = g.group.ShakeHands(t, g.HandshakeTimeout)
		s.of.mu.Lock() // end may close the side
		s.end.BindRecords()
		s.of.mu.Unlock()
	}
	if err != nil && err != park.ErrHandshake && !serving.IsPanic(err) {
		err = fmt.Errorf("tunnel: %w", err)
	}
	return err
}
