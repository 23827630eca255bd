package server

import (
	"math"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// A counter is the smallest handler, with a pointer for its state.
type counter struct{}

func (counter) Open(c *Conn[*int]) error { return nil }
func (counter) Data(c *Conn[*int], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}
func (counter) Close(c *Conn[*int], cause error) {}

// servingOn starts a server and returns its address.
func servingOn[S any](tb testing.TB, s *Server[S]) netip.AddrPort {
	tb.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	addr := l.LocalAddr()
	done := make(chan error, 1)
	go func() { done <- s.ServeSocket(l) }()
	tb.Cleanup(func() {
		s.Close()
		if err := <-done; err != ErrServerClosed {
			tb.Errorf("ServeSocket = %v", err)
		}
		if err := s.Shutdown(tb.Context()); err != nil && tb.Context().Err() == nil {
			tb.Error(err)
		}
		<-s.server.stopped
	})
	return addr
}

// A timeout that is set while the connection ends leaves no armed timer.
func TestNoTimerAfterClose(t *testing.T) {
	s := &Server[*int]{Handler: counter{}, Workers: 1}
	peer, err := net.Dial("tcp", servingOn(t, s).String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	testawait.Until(t, "the connection is accepted", func() bool { return s.Stats().Conns == 1 })
	s.server.mu.Lock()
	c := s.server.table[0]
	s.server.mu.Unlock()

	c.mu.Lock() // as SetIdleTimeout does
	c.end(wAborting)
	testawait.Until(t, "the worker has begun to close it", func() bool { return c.word.Load()&wDead != 0 })
	testawait.Pause(10 * time.Millisecond) // so that the worker mostly waits for the lock; it holds if it does not
	s.server.wheel.Set(c, time.Hour)
	c.mu.Unlock()
	testawait.Until(t, "the connection has ended", func() bool { return s.Stats().Conns == 0 })
	if s.server.wheel.Stop(c) {
		t.Error("the timer of a connection that is gone is armed")
	}
}

// The longest possible timeout does not disable another one.
func TestLongestTimeout(t *testing.T) {
	s := &server{config: config{WriteTimeout: time.Second}}
	s.init()
	defer s.wheel.Close()
	c := &conn{listener: &listener{server: s}}
	c.word.Store(wOut)
	c.ensureExtra().since = s.wheel.Now()
	c.extra.idle = math.MaxInt64
	s.expired(c)
	if !s.wheel.Stop(c) {
		t.Error("WriteTimeout is forgotten for an IdleTimeout of 292 years")
	}
}

// Stats reads the clock before it looks at the workers. A handler call that has begun since has the age 0.
func TestWatchdogClock(t *testing.T) {
	if _, d := (&watchdog{now: 5}).ran(&activity{busy: true, since: 6}); d != 0 {
		t.Errorf("a handler that began just now has run for %v", d)
	}
}

// During Shutdown a connection that has sent nothing has time for a first request, unless it was accepted long ago.
func TestLastRequest(t *testing.T) {
	s := new(server)
	s.init()
	defer s.wheel.Close()
	long := uint32(s.wheel.Ticks(graceTime)) + 1
	for _, test := range []struct {
		age, is, becomes uint32
	}{
		{0, 0, wGrace},
		{long - 1, 0, wGrace},
		{long, 0, wLast | wResumed},
		{0, wReceived, wReceived | wLast | wResumed},
		{0, wHandshake, wHandshake | wGrace},
		{long, wHandshake, wHandshake | wLast | wResumed},
	} {
		c := &conn{listener: &listener{server: s}}
		c.word.Store(wOwned | test.is)
		c.active.Store(uint32(s.wheel.Now()) - test.age)
		if c.lastRequest(); c.word.Load() != wOwned|test.becomes {
			t.Errorf("%+v becomes %b, want %b", test, c.word.Load(), wOwned|test.becomes)
		}
	}
}

// If a hijacker closes the connection before it has the socket, the word changes from hijacked to closing in one step. A
// worker that found neither bit would call Data.
func TestHijackedCloseIsAtomic(t *testing.T) {
	s := new(server)
	s.init()
	defer s.wheel.Close()
	var now atomic.Pointer[conn]
	var between atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c := now.Load(); c != nil && c.word.Load()&(wHijacked|wClosing) == 0 {
				between.Add(1)
			}
		}
	}()
	for range 20_000 {
		c := &conn{listener: &listener{server: s}}
		c.word.Store(wOwned | wHijacked | wOut)
		h := &hijacked{conn: c, ready: make(chan struct{})}
		c.ensureExtra().hijacked = h
		now.Store(c)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		s.wheel.Stop(c)
	}
	close(stop)
	<-stopped
	if n := between.Load(); n > 0 {
		t.Errorf("%d times it was neither hijacked nor closing", n)
	}
}

// A shard gets another worker if its connections wait while another shard is idle, and not because the system has preempted
// a worker's thread once.
func TestNeedsHelp(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		idlest time.Duration
		spent  []time.Duration // by batches
		n      int             // notifications of each
		want   bool
	}{
		{"handlers that block", 0, []time.Duration{6 * ms, 6 * ms}, 8, true},
		{"one connection", 0, []time.Duration{6 * ms, 6 * ms}, 1, false},
		{"a thread that was preempted", 0, []time.Duration{ms / 5, 4 * ms, ms / 5, 3 * ms}, 8, false},
		{"a busy shard", 20 * ms, slices.Repeat([]time.Duration{ms / 2}, 92), 8, true},
		{"two busy shards", 30 * ms, slices.Repeat([]time.Duration{ms / 2}, 92), 8, false},
		{"many fast handlers", 0, slices.Repeat([]time.Duration{ms / 2}, 60), 8, false},
	} {
		var l workload
		for _, d := range test.spent {
			l.add(d, test.n)
		}
		if got := l.needsHelp(test.idlest, tick); got != test.want {
			t.Errorf("%s: %v; want %v", test.name, got, test.want)
		}
	}
}

// An idle connection with TLS keeps an extra and a tlsConn. A field more in either can cost a size class of the allocator.
func TestExtraSize(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("not a system of 64 bits")
	}
	if e, c := unsafe.Sizeof(extra{}), unsafe.Sizeof(tlsConn{}); e > 224 || c > 160 {
		t.Errorf("extra has %d bytes, tlsConn %d; want at most 224 and 160", e, c)
	}
}
