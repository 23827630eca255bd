package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// talk sends a message on n connections, waits for its echo, and returns the number of bytes.
func talk(t *testing.T, addr string, n, size int) (moved uint64) {
	t.Helper()
	for range n {
		echoes(t, dial(t, addr), strings.Repeat("x", size))
		moved += uint64(size)
	}
	return moved
}

// Bytes and calls are those that the handler has seen, also after the workers have ended.
func TestStatsTraffic(t *testing.T) {
	for _, workers := range []int{1, 3} {
		var calls atomic.Uint64
		h := &handler{t: t}
		h.data = func(c conn, buf []byte) error {
			calls.Add(1)
			return echo(c, buf)
		}
		s := &srv{Handler: h, Workers: workers, TimeCalls: true, Name: "traffic"}
		addr := start(t, s)
		if st := s.Stats(); st.BytesIn != 0 || st.BytesOut != 0 || st.Calls != 0 || st.CallTime.Count() != 0 {
			t.Errorf("before the first: %+v", st)
		}
		moved := talk(t, addr, 5, 1000) + talk(t, addr, 2, 20_000) // more than is held back for one send
		var st server.Stats
		wait(t, func() bool { // a send is counted when it has returned, which may be after the peer has the bytes
			st = s.Stats()
			return st.BytesIn == moved && st.BytesOut == moved && st.Running == 0 && st.Calls == calls.Load()
		})
		s.Close()
		shutdown(t, s)
		if st = s.Stats(); st.Calls != calls.Load() || st.CallTime.Count() != st.Calls || st.CallTime.Sum <= 0 || st.BytesIn != moved {
			t.Errorf("at the end: %+v; want %d calls and %d bytes", st, calls.Load(), moved)
		}
	}
}

// The input, Writev and bytes that had to be queued are counted as well.
func TestStatsTrafficOtherWays(t *testing.T) {
	const size = 16 << 20 // more than the system takes
	h := &handler{t: t}
	h.data = func(c conn, buf []byte) error {
		if _, err := c.Next(4); err != nil {
			return err
		}
		_, err := c.Writev([][]byte{make([]byte, size/2), make([]byte, size/2)})
		return err
	}
	s := &srv{Handler: h}
	c := dial(t, start(t, s))
	c.Write([]byte("more"))
	wait(t, func() bool { return s.Stats().QueuedBytes > 0 })
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { st := s.Stats(); return st.QueuedBytes == 0 && st.BytesIn == 4 && st.BytesOut == size })
}

// A goroutine that has a connection after Pause receives and sends outside of a worker.
func TestStatsTrafficPaused(t *testing.T) {
	h := &handler{t: t}
	given := make(chan conn, 1)
	h.data = func(c conn, buf []byte) error {
		if c.Value.extra != nil {
			return echo(c, buf)
		}
		c.Value.extra = true
		c.Pause()
		given <- c
		return nil
	}
	s := &srv{Handler: h}
	peer := dial(t, start(t, s))
	peer.Write([]byte("hello"))
	c := <-given
	buf := make([]byte, 16)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(buf[:n])
	io.ReadFull(peer, buf[:n])
	wait(t, func() bool { st := s.Stats(); return st.BytesIn == 5 && st.BytesOut == 5 })
	c.Resume()
}

func TestStatsRunning(t *testing.T) {
	h := &handler{t: t}
	begun, end := make(chan struct{}), make(chan struct{})
	h.data = func(c conn, buf []byte) error {
		begun <- struct{}{}
		<-end
		return echo(c, buf)
	}
	s := &srv{Handler: h, Workers: 2, TimeCalls: true}
	c := dial(t, start(t, s))
	c.Write([]byte("x"))
	<-begun
	wait(t, func() bool { return s.Stats().Running == 1 }) // the other worker has opened the connection, perhaps
	if n := s.Stats().Calls; n != 0 {
		t.Errorf("%d calls, before the first has returned", n)
	}
	close(end)
	wait(t, func() bool { st := s.Stats(); return st.Running == 0 && st.Calls == 1 && st.CallTime.Count() == 1 })
}

func TestStatsHijacked(t *testing.T) {
	h := &handler{t: t}
	given := make(chan net.Conn, 1)
	h.data = func(c conn, buf []byte) error {
		if c.Value.extra != nil {
			return echo(c, buf)
		}
		c.Value.extra = true
		nc, err := c.Hijack()
		given <- nc
		return err
	}
	s := &srv{Handler: h}
	addr := start(t, s)
	first := dial(t, addr)
	first.Write([]byte("x"))
	<-given
	second := dial(t, addr)
	second.Write([]byte("x"))
	nc := <-given
	if st := s.Stats(); st.Hijacked != 2 || st.Conns != 2 {
		t.Errorf("%+v", st)
	}
	h.conn(1).Resume()
	if st := s.Stats(); st.Hijacked != 1 {
		t.Errorf("after Resume: %+v", st)
	}
	nc.Close()
	wait(t, func() bool { st := s.Stats(); return st.Hijacked == 0 && st.Conns == 1 })
}

func TestStatsHandshakes(t *testing.T) {
	s := &srv{Handler: &handler{t: t}, HandshakeTimeout: 3 * time.Second}
	clock := testclock.Install(t)
	addr, client := startTLS(t, s)
	echoes(t, dialTLS(t, addr, client), "hello")
	if st := s.Stats(); st.Handshakes != 1 || st.Handshaking != 0 || st.Rejected != 0 || st.BytesIn < 100 {
		t.Errorf("after one: %+v", st)
	}
	dial(t, addr).Write([]byte("not TLS at all"))
	wait(t, func() bool { return s.Stats().Rejected == 1 })
	silent := dial(t, addr)
	wait(t, func() bool { return s.Stats().Handshaking == 1 })
	wait(t, func() bool {
		clock.Advance(4 * time.Second) // again: its timeout begins after it is counted
		st := s.Stats()
		return st.Handshaking == 0 && st.Rejected == 1 && st.TimedOut.Handshake == 1 && st.Handshakes == 1
	})
	if n, err := silent.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the silent one got %d bytes, %v", n, err)
	}
}

// With one slot, a handshake that waits for its peer makes room for the next.
func TestStatsEvictedHandshakes(t *testing.T) {
	s := &srv{Handler: &handler{t: t}, MaxHandshakes: 1}
	addr, client := startTLS(t, s)
	hello := clientHello(t, client)
	waits := dial(t, addr)
	waits.Write(hello)
	waits.Read(make([]byte, 1)) // it waits for the client's second message
	c := dialTLS(t, addr, client)
	must(t, c.Handshake())
	wait(t, func() bool { st := s.Stats(); return st.EvictedHandshakes == 1 && st.Rejected == 0 })
}

func TestStatsRefused(t *testing.T) {
	for perAddr, s := range []*srv{{MaxConns: 2, MaxConnsPerAddr: 5}, {MaxConns: 3, MaxConnsPerAddr: 2}} {
		s.Handler = &handler{t: t}
		addr := start(t, s)
		talk(t, addr, 2, 1)
		dial(t, addr).Read(make([]byte, 1))
		if st := s.Stats(); st.Refused != 1 || st.RefusedPerAddr != uint64(perAddr) {
			t.Errorf("%+v", st)
		}
	}
}

// A handler that panics or ends its goroutine was called, but is not timed.
func TestStatsCallsThatPanic(t *testing.T) {
	h := &handler{t: t}
	h.data = func(c conn, buf []byte) error { panic("on purpose") }
	s := &srv{Handler: h, TimeCalls: true}
	addr := start(t, s)
	dial(t, addr).Write([]byte("x"))
	wait(t, func() bool { st := s.Stats(); return st.Panics == 1 && st.Calls == 1 && st.Running == 0 })
	if n := s.Stats().CallTime.Count(); n != 0 {
		t.Errorf("%d calls timed", n)
	}
}

// Ready is false before Serve, after it, and as soon as Shutdown has begun.
func TestReady(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h := &handler{t: t}
	h.data = func(c conn, buf []byte) error {
		close(entered)
		<-leave
		return errors.New("over")
	}
	s := &srv{Handler: h}
	if s.Ready() || s.Ports() != nil {
		t.Error("ready before Serve")
	}
	addr := start(t, s)
	wait(t, s.Ready)
	if n := len(s.Ports()); n != s.Stats().Workers {
		t.Errorf("%d ports", n)
	}
	dial(t, addr).Write([]byte("x"))
	<-entered
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	wait(t, func() bool { return !s.Ready() })
	select {
	case err := <-down:
		t.Errorf("Shutdown has returned before the handler: %v", err)
	default:
	}
	close(leave)
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// The goroutine that calls Data has the label, and so have goroutines that Data starts. That of Serve, which is the program's,
// has none.
func TestProfileLabels(t *testing.T) {
	h := &handler{t: t}
	profile := make(chan string, 1)
	var once sync.Once
	look := func() {
		inherits := make(chan struct{})
		done := make(chan struct{})
		go func() {
			close(inherits)
			<-done
		}()
		<-inherits
		var b strings.Builder
		pprof.Lookup("goroutine").WriteTo(&b, 1)
		close(done)
		profile <- b.String()
	}
	h.data = func(c conn, buf []byte) error {
		once.Do(look)
		return echo(c, buf)
	}
	s := &srv{Handler: h, Name: "shop", Workers: 1}
	c := dial(t, start(t, s))
	c.Write([]byte("x"))
	const label = `# labels: {"socknotify_server":"shop"}`
	p := <-profile
	for what, want := range map[string]bool{"callData": true, "TestProfileLabels.func1.1": true, "engine.Failure.Await": false} {
		for g := range strings.SplitSeq(p, "\n\n") {
			if strings.Contains(g, what) && strings.Contains(g, label) != want {
				t.Errorf("goroutine %s has no label, or one that it should not have:\n%s", what, g)
			}
		}
		if !strings.Contains(p, what) {
			t.Errorf("no goroutine %s in\n%s", what, p)
		}
	}
	io.ReadFull(c, make([]byte, 1))
}
