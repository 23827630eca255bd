package conn

import (
	"math"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// bare returns what connections share that have no server.
func bare(t *testing.T) *Shared {
	s := new(Shared)
	s.Init(nil)
	t.Cleanup(s.Wheel.Close)
	return s
}

// The longest possible timeout does not disable another one.
func TestLongestTimeout(t *testing.T) {
	s := bare(t)
	s.WriteTimeout = time.Second
	c := &Conn{link: &link{listener: &Listener{shared: s}}}
	c.word.Store(wOut)
	c.ensureExtra().out.since = s.Wheel.Now()
	c.extra.own.idle = math.MaxInt64
	s.expired(c)
	if !s.Wheel.Stop(c) {
		t.Error("WriteTimeout is forgotten for an IdleTimeout of 292 years")
	}
}

// During Shutdown a connection that has sent nothing has time for a first request, unless it was
// accepted long ago.
func TestLastRequest(t *testing.T) {
	s := bare(t)
	const grace = 5 * time.Second
	long := uint32(s.Wheel.Ticks(grace)) + 1
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
		c := &Conn{link: &link{listener: &Listener{shared: s}}}
		c.word.Store(wOwned | test.is)
		c.active.Store(uint32(s.Wheel.Now()) - test.age)
		if c.LastRequest(grace); c.word.Load() != wOwned|test.becomes {
			t.Errorf("%+v becomes %b, want %b", test, c.word.Load(), wOwned|test.becomes)
		}
	}
}

// If a hijacker closes the connection before it has the socket, the word changes from hijacked to
// closing in one step. A worker that found neither bit would call Data.
func TestHijackedCloseIsAtomic(t *testing.T) {
	s := bare(t)
	var now atomic.Pointer[Conn]
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
		c := &Conn{link: &link{listener: &Listener{shared: s}}}
		c.word.Store(wOwned | wHijacked | wOut)
		h := &hijacked{conn: c, ready: make(chan struct{})}
		c.ensureExtra().hijacked = h
		now.Store(c)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		s.Wheel.Stop(c)
	}
	close(stop)
	<-stopped
	if n := between.Load(); n > 0 {
		t.Errorf("%d times it was neither hijacked nor closing", n)
	}
}

// An idle connection with TLS keeps a tlsConn, and one with a timer an extra. A field more can cost a
// size class of the allocator.
func TestSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("not a system of 64 bits")
	}
	for _, k := range []struct {
		name    string
		n, most uintptr
	}{
		{"Conn", unsafe.Sizeof(Conn{}), 72},
		{"extra", unsafe.Sizeof(extra{}), 192},
		{"input", unsafe.Sizeof(input{}), 96},
		{"tlsConn", unsafe.Sizeof(tlsConn{}), 160},
	} {
		if k.n > k.most {
			t.Errorf("%s has %d bytes, want at most %d", k.name, k.n, k.most)
		}
	}
}
