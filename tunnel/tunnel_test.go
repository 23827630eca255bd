package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/words"
)

// newTunnels completes g, and verifies at the end of the test that nothing is left behind.
func newTunnels(t testing.TB, g *Tunnels) (*Tunnels, chan error) {
	t.Helper()
	closed := make(chan error, 100)
	if g.OnClose == nil {
		g.OnClose = func(_ *Tunnel, err error) { closed <- err }
	}
	if g.Logger == nil {
		g.Logger = conntest.Quiet
	}
	t.Cleanup(func() {
		g.Close()
		check.OK(t, g.Shutdown(context.Background()))
		if s := g.Stats(); s.Conns != 0 || s.QueuedBytes != 0 {
			t.Errorf("left behind: %+v", s)
		}
		// A lot of one's own may still be about to run the functions of the sides.
		await.Until(t, "no side is parked, and no function runs", func() bool {
			s := g.Stats()
			return s.Parked == 0 && s.Running == 0
		})
	})
	return g, closed
}

// eachTunnel runs test with a connection of each kind on either side of a tunnel. near is the peer
// of that connection, far that of the other, which is plain.
func eachTunnel(t *testing.T, test func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn))) {
	for name, kind := range conntest.Kinds {
		for _, second := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", second"}[second], func(t *testing.T) {
				test(t, func(t testing.TB, g *Tunnels) (near, far net.Conn) {
					t.Helper()
					a, near := kind(t)
					b, far := conntest.Pair(t, "tcp")
					if second {
						a, b = b, a
					}
					check.OK(t, g.Join(a, b))
					return near, far
				})
			})
		}
	}
}

// resting waits until no goroutine copies for n tunnels, unless a side has one of its own.
func (g *Tunnels) resting(t testing.TB, n int) {
	t.Helper()
	await.Until(t, "the tunnels are at rest", func() bool {
		st := g.Stats()
		return st.Running == 0 && st.Waiting == 0 && (st.Parked == 2*n || st.Unparkable > 0) &&
			st.QueuedBytes == 0
	})
}

// closeWrite ends the stream of a peer.
func endStream(t testing.TB, conn net.Conn) {
	t.Helper()
	check.OK(t, conn.(parking.CloseWriter).CloseWrite())
}

// Bytes go both ways, between which the tunnel is parked, and a half-close leaves the other
// direction open.
func TestTunnel(t *testing.T) {
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		g, closed := newTunnels(t, &Tunnels{})
		near, far := join(t, g)
		for range 6 {
			conntest.Send(t, near, "there")
			conntest.Expect(t, far, "there")
			g.resting(t, 1)
			conntest.Send(t, far, "and back")
			conntest.Expect(t, near, "and back")
			g.resting(t, 1)
		}
		endStream(t, near)
		conntest.ExpectRest(t, far, "")
		conntest.Send(t, far, "last")
		conntest.Expect(t, near, "last")
		check.Empty(t, closed)
		endStream(t, far)
		conntest.ExpectRest(t, near, "")
		check.OK(t, await.Value(t, closed))
		st := g.Stats()
		if sum := st.BytesForth + st.BytesBack; sum != 6*13+4 || st.Accepted != 1 || st.Panics != 0 {
			t.Errorf("%d bytes, %+v", sum, st)
		}
	})
}

// A gated connection's Write waits for its gate.
type gatedConn struct {
	net.Conn
	gate chan struct{}
}

func (c *gatedConn) Write(b []byte) (int, error) {
	<-c.gate
	return c.Conn.Write(b)
}

// A Write and an OnClose that wait delay no other tunnel, although a worker takes several sides from
// the port at once.
func TestTunnelWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is sent is waiting when a worker runs
	gate := make(chan struct{})
	g, _ := newTunnels(t, &Tunnels{OnClose: func(tunnel *Tunnel, _ error) {
		if tunnel.Value == "waits" {
			<-gate
		}
	}})
	join := func(wrap func(net.Conn) net.Conn, value any) (near, far net.Conn) {
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		_, err := g.JoinWith(a, wrap(b), Options{Value: value})
		check.OK(t, err)
		return near, far
	}
	plain := func(c net.Conn) net.Conn { return c }
	slow, behind := join(func(c net.Conn) net.Conn { return &gatedConn{c, gate} }, nil)
	var near, far [tunnelBatch - 3]net.Conn // one batch, with the other two
	for i := range near {
		near[i], far[i] = join(plain, nil)
	}
	for range 30 {
		ends, end := join(plain, "waits")
		g.resting(t, len(near)+2)
		conntest.Send(t, slow, "slow")
		end.Close()
		ends.Close()
		for _, c := range near {
			conntest.Send(t, c, "x")
		}
		for _, c := range far {
			conntest.Expect(t, c, "x")
		}
		gate <- struct{}{}
		gate <- struct{}{}
		conntest.Expect(t, behind, "slow")
	}
}

// What was received before is sent first, and counts.
func TestTunnelReceived(t *testing.T) {
	for name, kind := range conntest.Kinds {
		t.Run(name, func(t *testing.T) {
			var tunnel *Tunnel
			ended := make(chan struct{})
			g, _ := newTunnels(t, &Tunnels{OnClose: func(t *Tunnel, err error) { tunnel = t; close(ended) }})
			a, near := kind(t)
			b, far := conntest.Pair(t, "tcp")
			_, err := g.JoinWith(a, b, Options{FromA: []byte("of a, "), FromB: []byte("of b, "), Value: 42})
			check.OK(t, err)
			conntest.Send(t, near, "and more")
			conntest.Expect(t, far, "of a, and more")
			conntest.Send(t, far, "and more")
			conntest.Expect(t, near, "of b, and more")
			endStream(t, near)
			conntest.ExpectRest(t, far, "")
			far.Close()
			await.Value(t, ended)
			if forth, back := tunnel.Bytes(); forth != 14 || back != 14 || tunnel.Value != 42 {
				t.Errorf("%d bytes there, %d back, value %v", forth, back, tunnel.Value)
			}
			if a, b := tunnel.Conns(); a.RemoteAddr() == nil || b.RemoteAddr() == nil {
				t.Error("no addresses")
			}
		})
	}
}

// pattern returns the first n bytes of sockettest.Sequence. They must not be changed.
func pattern(n int) []byte { return longest()[:n:n] }

var longest = sync.OnceValue(func() []byte { return sockettest.Sequence(0, 16<<20) })

// takePipes takes all pipes that there are.
func takePipes() (all []*nowait.Pipe) {
	for p := nowait.TakePipe(); p != nil; p = nowait.TakePipe() {
		all = append(all, p)
	}
	return all
}

func releasePipes(all []*nowait.Pipe) {
	for _, p := range all {
		p.Release()
	}
}

// A peer that does not read holds back its own direction alone, with a bounded rest in memory. When
// it reads, it gets everything.
func TestTunnelSlowReader(t *testing.T) {
	defer releasePipes(takePipes()) // they hold more
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		for _, swap := range []bool{false, true} {
			g, closed := newTunnels(t, &Tunnels{})
			near, far := join(t, g)
			conntest.Send(t, near, "x") // the handshake
			conntest.Expect(t, far, "x")
			fast, slow := near, far
			if swap {
				fast, slow = far, near
			}
			much := pattern(16 << 20)
			wrote := make(chan error, 1)
			go func() {
				_, err := fast.Write(much)
				wrote <- err
			}()
			buf := make([]byte, 1000)
			_, err := io.ReadFull(slow, buf)
			check.OK(t, err)
			for range 20 { // the other direction is not held back
				conntest.Send(t, slow, "answer")
				conntest.Expect(t, fast, "answer")
			}
			if q := g.Stats().QueuedBytes; q > 32<<10 {
				t.Errorf("%d bytes are queued", q)
			}
			got := make([]byte, len(much))
			copy(got, buf)
			slow.SetReadDeadline(time.Now().Add(conntest.Timeout))
			_, err = io.ReadFull(slow, got[len(buf):])
			check.OK(t, err)
			if !bytes.Equal(got, much) {
				t.Error("other bytes")
			}
			check.OK(t, await.Value(t, wrote))
			near.Close()
			far.Close()
			await.Value(t, closed)
		}
	})
}

// A thousand tunnels whose peers do not read are parked, with a bounded rest and no goroutine, and
// bound the memory.
func TestTunnelSlowReaders(t *testing.T) {
	defer releasePipes(takePipes()) // they hold more
	for _, kind := range []string{"TCP", "TLS"} {
		t.Run(kind, func(t *testing.T) {
			n := long.Or(1000, 50)
			g, closed := newTunnels(t, &Tunnels{})
			before := runtime.NumGoroutine()
			var writing sync.WaitGroup
			var peers []net.Conn
			for range n {
				a, near := conntest.Kinds[kind](t)
				b, far := conntest.Pair(t, "tcp")
				conntest.Small(t, a, near, b, far)
				check.OK(t, g.Join(a, b))
				if c, ok := near.(*tls.Conn); ok {
					check.OK(t, c.Handshake()) // so that what it leaves is not counted
				}
				peers = append(peers, near, far)
			}
			heap := liveHeap()
			var written atomic.Int64
			for i := 0; i < len(peers); i += 2 {
				near := peers[i]
				writing.Go(func() {
					text := make([]byte, 32<<10)
					for err := error(nil); err == nil; written.Add(1) {
						_, err = near.Write(text)
					}
				})
			}
			quiet := long.Or(3*time.Second, 200*time.Millisecond) // a thousand writers wait for the processors, too
			last, since := int64(-1), time.Now()
			await.Until(t, "bytes are held, and no writer goes on", func() bool {
				if n := written.Load(); n != last {
					last, since = n, time.Now()
				}
				return g.Stats().QueuedBytes > 0 && time.Since(since) > quiet
			})
			for i := 0; i < len(peers); i += 2 {
				peers[i].SetWriteDeadline(time.Now())
			}
			writing.Wait()
			await.Until(t, "the tunnels are parked, and hold bytes", func() bool {
				st := g.Stats()
				return st.Running == 0 && st.Waiting == 0 && st.QueuedBytes > 0 &&
					runtime.NumGoroutine() < before+5 // each worker has a buffer
			})
			if q := g.Stats().QueuedBytes; q > int64(n)*32<<10 {
				t.Errorf("%d bytes are queued for %d peers", q, n)
			}
			// At most 32 KiB of rest, and with TLS a buffer for records, for which 40 KiB are
			// allocated, and ciphers.
			if each := (liveHeap() - heap) / n; each > 76<<10 {
				t.Errorf("%d bytes for each of %d peers", each, n)
			}
			for _, conn := range slices.Backward(peers) {
				conn.Close() // far first: a *tls.Conn waits for seconds to write its last record
			}
			for range n {
				await.Value(t, closed)
			}
		})
	}
}

// liveHeap returns the bytes of the heap after two collections, which empty the pools.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Both peers send much, and read only after a while.
func TestTunnelBothSend(t *testing.T) {
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		g, closed := newTunnels(t, &Tunnels{})
		near, far := join(t, g)
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		much := pattern(5 << 20)
		var all sync.WaitGroup
		for _, conn := range []net.Conn{near, far} {
			all.Go(func() { conn.Write(much) })
			all.Go(func() {
				await.Pause(10 * time.Millisecond)
				got := make([]byte, len(much))
				conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, much) {
					t.Errorf("%v, or other bytes", err)
				}
			})
		}
		all.Wait()
		g.resting(t, 1)
		near.Close()
		far.Close()
		await.Value(t, closed)
	})
}

// resetPeer resets the connection of a peer.
func resetPeer(conn net.Conn) {
	switch c := conn.(type) {
	case *tls.Conn:
		resetPeer(c.NetConn())
	case *conntest.HeldWriter:
		resetPeer(c.Conn)
	case *bufferedPeer:
		resetPeer(c.Conn)
	case *net.TCPConn:
		c.SetLinger(0)
		c.Close()
	default:
		c.Close()
	}
}

// A reset on one side resets the other, and is the cause.
func TestTunnelReset(t *testing.T) {
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		for _, swap := range []bool{false, true} {
			g, closed := newTunnels(t, &Tunnels{})
			near, far := join(t, g)
			conntest.Send(t, near, "x")
			conntest.Expect(t, far, "x")
			conntest.Send(t, far, "x")
			conntest.Expect(t, near, "x")
			_, isUnix := near.(*net.UnixConn)
			opaque := g.Stats().Unparkable > 0
			if swap {
				near, far = far, near
			}
			resetPeer(near)
			far.SetReadDeadline(time.Now().Add(conntest.Timeout))
			_, err := far.Read(make([]byte, 1))
			if err == io.EOF && (isUnix || opaque) {
				continue // there are no resets, or no way to the socket
			}
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || err == io.EOF {
				t.Errorf("%v, want a reset", err)
			}
			if runtime.GOOS != "windows" {
				check.Is(t, await.Value(t, closed), syscall.ECONNRESET)
			}
		}
	})
}

// rests reports whether no goroutine copies. The time of the last byte does not change then.
func (t *Tunnel) rests() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.a.copying && !t.b.copying && t.a.sent.Load() > 0
}

// The kernel reports a reset to one operation. If that was a write, and the other direction sees an
// end, the peer gets no end: it would take a part of a stream for the whole.
func TestTunnelResetLooksLikeEnd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows reports a reset to each operation")
	}
	g, closed := newTunnels(t, &Tunnels{})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	resetPeer(far)
	await.Until(t, "a write has got the error", func() bool {
		_, err := b.Write([]byte("x"))
		return err != nil
	})
	check.OK(t, g.Join(a, b))
	check.Is(t, await.Value(t, closed), syscall.ECONNRESET)
	_, err := near.Read(make([]byte, 1))
	check.Is(t, err, syscall.ECONNRESET)
}

// The timeouts end a tunnel, whatever it waits for.
func TestTunnelTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		idle, half, after time.Duration
		prepare           func(t *testing.T, near, far net.Conn)
	}{
		"idle":                 {time.Hour, 0, time.Hour, func(t *testing.T, near, far net.Conn) {}},
		"half-closed":          {time.Hour, time.Minute, time.Minute, halfClosed},
		"half-closed alone":    {0, time.Minute, time.Minute, halfClosed},
		"half-closed and idle": {time.Hour, 0, time.Hour, halfClosed},
		"not read": {time.Hour, 0, time.Hour, func(t *testing.T, near, far net.Conn) {
			near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			for err := error(nil); err == nil; {
				_, err = near.Write(make([]byte, 64<<10))
			}
		}},
	} {
		for _, kind := range []string{"TCP", "TLS", "wrapper"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				clock := testclock.Install(t)
				g, closed := newTunnels(t, &Tunnels{IdleTimeout: c.idle, HalfCloseTimeout: c.half})
				a, near := conntest.Kinds[kind](t)
				b, far := conntest.Pair(t, "tcp")
				check.OK(t, g.Join(a, b))
				conntest.Send(t, near, "x")
				conntest.Expect(t, far, "x")
				c.prepare(t, near, far)
				await.Until(t, "a side is parked for the timeout, and nothing moves", func() bool {
					return (parkedUntil(g.lot(), a, c.after) || parkedUntil(g.lot(), b, c.after)) && (*Tunnel)(g.group.List[0]).rests()
				})
				clock.Advance(c.after - time.Second)
				check.Empty(t, closed)
				clock.Advance(3 * time.Second)
				if name == "not read" { // the system takes a little more, once
					await.Until(t, "the tunnel has ended", func() bool {
						clock.Advance(c.after)
						return len(closed) > 0
					})
				}
				check.Is(t, await.Value(t, closed), park.ErrIdle)
				if st := g.Stats(); st.TimedOut.Idle != 1 {
					t.Errorf("%+v", st.TimedOut)
				}
			})
		}
	}
}

// parkedUntil reports whether a connection is parked until a time since the lot's start.
func parkedUntil(l *parking.Lot, conn net.Conn, due time.Duration) bool {
	at, parked := l.Due(conn)
	return parked && at == due
}

func halfClosed(t *testing.T, near, far net.Conn) {
	endStream(t, near)
	conntest.ExpectRest(t, far, "")
}

// A negative number means that there is no such limit.
func TestTunnelsNegative(t *testing.T) {
	g := &Tunnels{HalfCloseTimeout: -1}
	words.Negative(g)
	g, closed := newTunnels(t, g)
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
	conntest.Send(t, near, "x")
	conntest.Expect(t, far, "x")
	endStream(t, near)
	conntest.ExpectRest(t, far, "")
	far.Close()
	check.OK(t, await.Value(t, closed))
}

// Bytes in either direction keep a tunnel from being idle.
func TestTunnelNotIdle(t *testing.T) {
	clock := testclock.Install(t)
	g, closed := newTunnels(t, &Tunnels{IdleTimeout: time.Hour})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
	for range 5 {
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		g.resting(t, 1)
		clock.Advance(40 * time.Minute)
		conntest.Send(t, far, "x")
		conntest.Expect(t, near, "x")
		g.resting(t, 1)
		clock.Advance(40 * time.Minute)
	}
	check.Empty(t, closed)
	await.Until(t, "the tunnel has ended", func() bool {
		clock.Advance(time.Hour)
		return len(closed) > 0
	})
	check.Is(t, await.Value(t, closed), park.ErrIdle)
}

// A peer that does not make its handshake ends the tunnel, and so does one that makes it wrong.
func TestTunnelHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		send string
		want error
	}{"late": {"", park.ErrHandshake}, "wrong": {"GET / HTTP/1.1\r\n\r\n", tls.RecordHeaderError{}}} {
		t.Run(name, func(t *testing.T) {
			g, closed := newTunnels(t, &Tunnels{HandshakeTimeout: conntest.Timeout})
			if c.send == "" {
				g.HandshakeTimeout = time.Millisecond
			}
			a, near := conntest.Pair(t, "tcp")
			b, far := conntest.Pair(t, "tcp")
			conntest.Send(t, near, c.send)
			check.OK(t, g.Join(b, park.TLSServer(a, &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}})))
			err := await.Value(t, closed)
			if c.want != park.ErrHandshake {
				if !errors.As(err, new(tls.RecordHeaderError)) {
					t.Errorf("%v", err)
				}
			} else {
				check.Is(t, err, park.ErrHandshake)
			}
			far.SetReadDeadline(time.Now().Add(conntest.Timeout))
			if _, err := far.Read(make([]byte, 1)); err == nil {
				t.Error("the other side is open")
			}
			if st := g.Stats(); st.TimedOut.Handshake+st.Rejected != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Shutdown waits for tunnels until its context is done, and refuses others. Close ends them.
func TestTunnelsShutdown(t *testing.T) {
	check.Is(t, new(Tunnels).Shutdown(nil), socknotify.ErrInvalid) //lint:ignore SA1012 it is what is tested
	check.OK(t, new(Tunnels).Shutdown(t.Context()))
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		g, closed := newTunnels(t, &Tunnels{})
		near, far := join(t, g)
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		done := make(chan error, 1)
		go func() { done <- g.Shutdown(t.Context()) }()
		await.Until(t, "Shutdown has begun", g.group.HasEnded)
		a, _ := conntest.Pair(t, "tcp")
		b, _ := conntest.Pair(t, "tcp")
		check.Is(t, g.Join(a, b), park.ErrServerClosed)
		conntest.Send(t, far, "on")
		conntest.Expect(t, near, "on")
		check.Empty(t, done)
		endStream(t, near)
		conntest.ExpectRest(t, far, "")
		far.Close()
		check.OK(t, await.Value(t, closed))
		check.OK(t, await.Value(t, done))

		g, closed = newTunnels(t, &Tunnels{})
		near, far = join(t, g)
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.ErrNoProgress)
		check.Is(t, g.Shutdown(ctx), io.ErrNoProgress)
		check.Is(t, await.Value(t, closed), park.ErrServerClosed)
		far.SetReadDeadline(time.Now().Add(conntest.Timeout))
		if _, err := far.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("%v, want a reset", err)
		}
	})
}

// A lot that the program closes ends its tunnels.
func TestTunnelsShareLot(t *testing.T) {
	l := newLot(t, park.Config{})
	for range 2 {
		g, closed := newTunnels(t, &Tunnels{Lot: l})
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		check.OK(t, g.Join(a, b))
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		if lots := g.Lots(); len(lots) != 1 || lots[0] != l {
			t.Error("another lot")
		}
		far.Close()
		near.Close()
		await.Value(t, closed)
		check.OK(t, g.Shutdown(t.Context()))
	}
	g, closed := newTunnels(t, &Tunnels{Lot: l})
	a, _ := conntest.Pair(t, "tcp")
	b, _ := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
	l.Close()
	check.Is(t, await.Value(t, closed), park.ErrServerClosed)
}

// Join refuses what it cannot join, and the caller still owns the connections.
func TestTunnelsJoin(t *testing.T) {
	words.Invalid(t, "Backend", (&Tunnels{Backend: "none such"}).Join(opaquePair(t)))
	g, closed := newTunnels(t, &Tunnels{MaxConns: 1})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.Is(t, g.Join(a, nil), socknotify.ErrInvalid)
	check.Is(t, g.Join(nil, b), socknotify.ErrInvalid)
	check.Is(t, g.Join(a, a), socknotify.ErrInvalid)
	gone, _ := conntest.Pair(t, "tcp")
	gone.Close()
	check.Is(t, g.Join(a, gone), net.ErrClosed)
	check.OK(t, g.Join(a, b))
	c, other := conntest.Pair(t, "tcp")
	d, _ := conntest.Pair(t, "tcp")
	check.Is(t, g.Join(c, d), park.ErrMaxConns)
	conntest.Send(t, other, "x")
	conntest.Expect(t, c, "x")
	if st := g.Stats(); st.Refused != 1 || st.Accepted != 1 || st.Conns != 1 {
		t.Errorf("%+v", st)
	}
	near.Close()
	far.Close()
	await.Value(t, closed)
}

func opaquePair(t testing.TB) (a, b net.Conn) {
	a, _ = conntest.Pair(t, "tcp")
	b, _ = conntest.Pair(t, "tcp")
	return conntest.Opaque(a), conntest.Opaque(b)
}

// Two connections that cannot be parked have goroutines, and the timeout too.
func TestTunnelAlone(t *testing.T) {
	const short = 500 * time.Millisecond // in the kernel, and not before both sides were tried
	for _, idle := range []time.Duration{0, short} {
		g, closed := newTunnels(t, &Tunnels{IdleTimeout: idle})
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		check.OK(t, g.Join(conntest.Opaque(a), conntest.Unfit(b)))
		await.Until(t, "both sides have goroutines", func() bool { return g.Stats().Unparkable == 2 })
		if idle == 0 {
			conntest.Send(t, near, "x")
			conntest.Expect(t, far, "x")
			conntest.Send(t, far, "x")
			conntest.Expect(t, near, "x")
			far.Close()
			check.OK(t, await.Value(t, closed))
		} else {
			check.Is(t, await.Value(t, closed), park.ErrIdle)
		}
		if st := g.Stats(); st.Unparkable != 2 || st.TimedOut.Idle != uint64(idle/short) {
			t.Errorf("%+v", st)
		}
	}
}

// A panicConn panics in Read when it has received something.
type panicConn struct {
	net.Conn
	value string
}

func (c *panicConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.value == "exit" {
		runtime.Goexit()
	} else if n > 0 {
		panic(c.value)
	}
	return n, err
}

// A panic and runtime.Goexit in a connection's method end the tunnel alone.
func TestTunnelPanics(t *testing.T) {
	words.Panic(t, func(value string) {
		g, closed := newTunnels(t, &Tunnels{})
		g.Logger = nil
		for _, v := range []string{value, "exit"} {
			a, near := conntest.Pair(t, "tcp")
			b, far := conntest.Pair(t, "tcp")
			check.OK(t, g.Join(&panicConn{a, v}, b))
			conntest.Send(t, near, "x")
			if err := await.Value(t, closed); err == nil {
				t.Error("no error")
			}
			far.SetReadDeadline(time.Now().Add(conntest.Timeout))
			if _, err := far.Read(make([]byte, 1)); err == nil {
				t.Error("the other side is open")
			}
		}
		if st := g.Stats(); st.Panics == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Abort ends a tunnel with its cause, once.
func TestTunnelAbort(t *testing.T) {
	g, closed := newTunnels(t, &Tunnels{})
	for _, cause := range []error{io.ErrNoProgress, nil} {
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		tunnel, err := g.JoinWith(a, b, Options{})
		check.OK(t, err)
		conntest.Send(t, near, "x")
		conntest.Expect(t, far, "x")
		if tunnel.Idle() > conntest.Timeout {
			t.Error("idle")
		}
		tunnel.Abort(cause)
		tunnel.Abort(io.ErrShortWrite)
		if cause == nil {
			cause = net.ErrClosed
		}
		check.Is(t, await.Value(t, closed), cause)
		check.Empty(t, closed)
	}
}

// With the longest durations in their fields tunnels work as without timeouts.
func TestTunnelLongestDurations(t *testing.T) {
	durationtest.Longest(t, new(Tunnels), func(t *testing.T, set func(*Tunnels)) {
		for _, kind := range []string{"TCP", "TLS without handshake", "opaque"} {
			g, closed := newTunnels(t, &Tunnels{})
			set(g)
			a, near := conntest.Kinds[kind](t)
			b, far := conntest.Pair(t, "tcp")
			check.OK(t, g.Join(a, b))
			conntest.Send(t, near, "x")
			conntest.Expect(t, far, "x")
			endStream(t, near)
			conntest.ExpectRest(t, far, "")
			far.Close()
			check.OK(t, await.Value(t, closed))
		}
	})
}
