package server_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// flood connects until a connection is refused, and returns the connections that were served.
func flood(t *testing.T, addr string, n int) (served []net.Conn) {
	t.Helper()
	for range n {
		c := dial(t, addr)
		if _, err := c.Write([]byte("hello")); err == nil {
			if n, _ := io.ReadFull(c, make([]byte, 5)); n == 5 {
				served = append(served, c)
				continue
			}
		}
		c.Close()
	}
	return served
}

func TestMaxConns(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxConns: 10}
		addr := start(t, s)
		served := flood(t, addr, 50)
		if st := s.Stats(); len(served) != 10 || st.Refused != 40 || st.Accepted != 10 {
			t.Errorf("%d served, %+v", len(served), st)
		}
		served[0].Close() // makes room
		wait(t, func() bool { return s.Stats().Conns == 9 })
		if n := len(flood(t, addr, 3)); n != 1 {
			t.Errorf("%d served", n)
		}
	})
}

func TestMaxConnsPerAddr(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &srv{Handler: &handler{t: t}, Backend: backend, MaxConnsPerAddr: 5}
		addr := start(t, s)
		if served := flood(t, addr, 20); len(served) != 5 {
			t.Errorf("%d served", len(served))
		}
		other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: soon}
		c, err := other.Dial("tcp", addr)
		if errors.Is(err, errno.NoAddr) {
			t.Skip("this system has one loopback address")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		echoes(t, c, "hello")
	})
}

// Writes beyond MaxQueuedTotal are refused whole, and the connection stays. A peer that reads is served, whatever others do.
func TestMaxQueued(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const most = 4 << 20
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 64 << 20, MaxQueuedTotal: most}
		c := connect(s)
		sc := h.conn(1)
		total := 0
		for size := 1 << 20; size > 0; size /= 2 {
			for {
				n, err := sc.Write(stream(1, total, size))
				if total += n; err == server.ErrOverload && n == 0 {
					break
				} else if err != nil || n != size {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
		}
		if q := s.Stats().QueuedBytes; q < most-1000 || q > most+most/100 {
			t.Errorf("%d bytes queued", q)
		}
		if st := s.Stats(); st.Overloads != 21 || st.Conns != 1 {
			t.Errorf("%+v", st)
		}
		sc.Close()
		expectAll(t, c, stream(1, 0, total))
	})
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 64 << 20, MaxQueuedTotal: 100_000}
		addr := start(t, s)
		dial(t, addr)
		fill(t, h.conn(1))
		for err := error(nil); err != server.ErrOverload; _, err = h.conn(1).Write(make([]byte, 10_000)) {
		}
		good := dial(t, addr)
		for range 100 {
			echoes(t, good, "hello")
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		var first atomic.Bool
		h := &handler{t: t, open: func(c conn) error {
			if first.CompareAndSwap(false, true) {
				c.SetIdleTimeout(-1)
			}
			return nil
		}}
		c := testclock.Install(t)
		s := &srv{Handler: h, Backend: backend, IdleTimeout: time.Second}
		addr := start(t, s)
		connect := func() net.Conn {
			nc := dial(t, addr)
			echoes(t, nc, "x")
			return nc
		}
		exempt, silent, lively := connect(), connect(), connect()
		c.Advance(900 * time.Millisecond)
		if n := s.Stats().Conns; n != 3 {
			t.Errorf("%d connections before the timeout", n)
		}
		// The time in which a call has a connection does not count, and a call may go on after its
		// client has the answer. So time passes until the connection ends.
		passes := func(idle uint64, beside func()) {
			for range await.Attempts(t, "an idle connection ends") {
				beside()
				c.Advance(250 * time.Millisecond)
				if s.Stats().TimedOut.Idle == idle {
					return
				}
			}
		}
		passes(1, func() { echoes(t, lively, "x") })
		expectEnd(t, silent, io.EOF)
		if err := h.cause(1); err != server.ErrIdle || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cause %v", err)
		}
		echoes(t, lively, "x")
		passes(2, func() {})
		expectEnd(t, lively, io.EOF)
		h.wantCause(2, server.ErrIdle)
		if n := s.Stats().TimedOut.Idle; n != 2 {
			t.Errorf("%d were idle", n)
		}
		echoes(t, exempt, "x")
	})
}

// With SilentIsIdle a connection is closed whose peer sends nothing, although the server writes to it, and one whose
// peer sends is not.
func TestSilentIsIdle(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, IdleTimeout: time.Second, SilentIsIdle: true}
		clock := testclock.Install(t)
		peer := connect(s)
		sc := h.conn(1)
		echoes(t, peer, "x")
		for range 10 { // in all more than the timeout
			echoes(t, peer, "x")
			clock.Advance(250 * time.Millisecond)
		}
		if n := s.Stats().Conns; n != 1 {
			t.Fatalf("%d connections, of which one sends", n)
		}
		for range await.Attempts(t, "the silent connection ends") {
			if _, err := sc.Write([]byte("ping")); err != nil {
				break
			}
			clock.Advance(250 * time.Millisecond)
		}
		h.wantCause(1, server.ErrIdle)
		if n := s.Stats().TimedOut.Idle; n != 1 {
			t.Errorf("%d were idle", n)
		}
	})
}

// With SilentIsIdle bytes that are queued, few enough that the server still receives, do not extend the time; and a
// server that receives nothing because of its queue does not take the peer for silent.
func TestSilentIsIdleQueue(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			most int
			want error
		}{
			"less than half": {64 << 20, server.ErrIdle},
			"more than half": {1 << 20, server.ErrSlow},
		} {
			t.Run(name, func(t *testing.T) {
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: backend, IdleTimeout: time.Second, SilentIsIdle: true,
					WriteTimeout: time.Minute, MaxQueued: c.most}
				clock := testclock.Install(t)
				dial(t, start(t, s))
				sc := h.conn(1)
				for sc.Queued() < 768<<10 {
					if _, err := sc.Write(make([]byte, 16<<10)); err != nil {
						t.Fatal(err)
					}
				}
				for range await.Attempts(t, "the connection ends") {
					if s.Stats().Conns == 0 {
						break
					}
					clock.Advance(25 * time.Millisecond)
				}
				h.wantCause(1, c.want)
			})
		}
	})
}

// A connection whose peer takes no queued bytes is closed after WriteTimeout, before Close and after it.
func TestWriteTimeout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, closing := range []bool{false, true} {
			h := &handler{t: t}
			s := &srv{Handler: h, Backend: backend, WriteTimeout: 10 * time.Second}
			passing(t)
			dial(t, start(t, s))
			sc := h.conn(1)
			fill(t, sc)
			if closing {
				sc.Close()
			}
			h.wantCause(1, server.ErrSlow)
			wait(t, func() bool { st := s.Stats(); return st.TimedOut.Slow == 1 && st.QueuedBytes == 0 && st.Conns == 0 })
		}
	})
}

// A connection has one timer for both of its timeouts. Each expires in time, whatever the other one is set to.
func TestTimeoutsTogether(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			idle, write time.Duration
			set         func(t *testing.T, sc conn, peer net.Conn)
			want        error
		}{
			"idle after a queue": {time.Second, time.Hour, func(t *testing.T, sc conn, peer net.Conn) {
				fill(t, sc)
				go io.Copy(io.Discard, peer)
			}, server.ErrIdle},
			"idle after SetWriteTimeout": {time.Second, 0, func(t *testing.T, sc conn, peer net.Conn) {
				fill(t, sc)
				sc.SetWriteTimeout(time.Hour)
				go io.Copy(io.Discard, peer)
			}, server.ErrIdle},
			"slow beside SetIdleTimeout": {0, time.Second, func(t *testing.T, sc conn, peer net.Conn) {
				fill(t, sc)
				sc.SetIdleTimeout(time.Hour)
			}, server.ErrSlow},
		} {
			t.Run(name, func(t *testing.T) {
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: backend, IdleTimeout: c.idle, WriteTimeout: c.write}
				passing(t)
				peer := dial(t, start(t, s))
				c.set(t, h.conn(1), peer)
				h.wantCause(1, c.want)
			})
		}
	})
}
