package parking

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

func TestMaxRunning(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const bound, conns = 3, 20
		l := newLot(t, Config{Backend: backend, MaxRunning: bound})
		var running, most atomic.Int64
		var done sync.WaitGroup
		release := make(chan struct{})
		for range conns {
			server, client := conntest.Pair(t, "tcp")
			done.Add(1)
			check.OK(t, l.Park(server, func(net.Conn) {
				defer done.Done()
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				<-release
				running.Add(-1)
			}))
			conntest.Send(t, client, "x")
		}
		await.Until(t, "MaxRunning functions are running", func() bool { return running.Load() == bound })
		await.Until(t, "the others are queued", func() bool { return l.Counts().Waiting == conns-bound })
		if s := l.Counts(); s.Running != bound || s.Parked != conns-bound || s.Workers != bound+1 {
			t.Fatalf("%+v", s)
		}
		close(release)
		done.Wait()
		if m := most.Load(); m != bound {
			t.Fatalf("%d ran at once, bound %d", m, bound)
		}
	})
}

// A connection that waits for a worker has no idle timeout, because its bytes came in time. It runs in its turn, and can
// be taken back and closed while it waits.
func TestQueued(t *testing.T) {
	clock := testclock.Install(t)
	l := newLot(t, Config{MaxRunning: 1, IdleTimeout: time.Minute})
	release := blockWorker(t, l)
	defer release()
	f, outcomes := conntest.Reader()
	var conns []net.Conn
	for i := range 4 {
		server, client := conntest.Pair(t, "tcp")
		conns = append(conns, server)
		conntest.Send(t, client, strconv.Itoa(i)) // in time, however slow this test is
		check.OK(t, l.Park(server, f))
		await.Until(t, "queued", func() bool { return l.Counts().Waiting == i+1 })
	}
	if !l.Unpark(conns[1]) {
		t.Error("not parked")
	}
	check.OK(t, l.CloseConn(conns[2]))
	idle, _ := conntest.Pair(t, "tcp") // without bytes, so its timeout passes
	check.OK(t, l.Park(idle, f))
	clock.Advance(2 * time.Minute)
	await.Until(t, "the idle connection is queued", func() bool { return l.Counts().Waiting == 5 })
	release()
	if o := await.Value(t, outcomes); o.Text != "0" || o.Err != nil {
		t.Errorf("%+v", o)
	}
	if o := await.Value(t, outcomes); !errors.Is(o.Err, net.ErrClosed) || o.Conn != conns[2] {
		t.Errorf("%+v", o)
	}
	if o := await.Value(t, outcomes); o.Text != "3" || o.Err != nil {
		t.Errorf("%+v", o)
	}
	if o := await.Value(t, outcomes); !errors.Is(o.Err, os.ErrDeadlineExceeded) || o.Conn != idle {
		t.Errorf("%+v", o)
	}
	await.Until(t, "none is queued", func() bool { return l.Counts().Waiting == 0 })
}

// Goexit in a function at the limit leaves its place to the next connection.
func TestGoexitQueued(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := blockWorker(t, l)
	defer release()
	f, outcomes := conntest.Reader()
	for i := range 6 {
		server, client := conntest.Pair(t, "tcp")
		check.OK(t, l.Park(server, func(conn net.Conn) {
			f(conn)
			if i%2 == 0 {
				runtime.Goexit()
			}
		}))
		conntest.Send(t, client, "x")
		await.Until(t, "queued", func() bool { return l.Counts().Waiting == i+1 })
	}
	release()
	for range 6 {
		if o := await.Value(t, outcomes); o.Text != "x" {
			t.Fatalf("%+v", o)
		}
	}
}

// Functions that wait for each other run on a goroutine each, and idle workers exit later.
func TestWorkersGrowAndShrink(t *testing.T) {
	l := newLot(t, Config{})
	const conns = 50
	var all sync.WaitGroup
	all.Add(conns)
	for range conns {
		server, client := conntest.Pair(t, "tcp")
		check.OK(t, l.Park(server, func(net.Conn) {
			all.Done()
			all.Wait()
		}))
		conntest.Send(t, client, "x")
	}
	all.Wait()
	await.Until(t, "idle workers exit", func() bool { return l.Counts().Workers <= max(2, runtime.GOMAXPROCS(0)) })
	await.Until(t, "one worker is left", func() bool { return l.Counts().Workers == 1 })
}

// A function that calls runtime.Goexit ends its worker; the lot continues with a new one.
func TestGoexit(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	for range 5 {
		server, client := conntest.Pair(t, "tcp")
		check.OK(t, l.Park(server, func(net.Conn) { runtime.Goexit() }))
		conntest.Send(t, client, "x")
		await.Until(t, "the function has run", func() bool { s := l.Counts(); return s.Parked+s.Running == 0 })
	}
	server, client := conntest.Pair(t, "tcp")
	f, outcomes := conntest.Reader()
	check.OK(t, l.Park(server, f))
	conntest.Send(t, client, "x")
	await.Value(t, outcomes)
}

func TestShutdown(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		busy, client := conntest.Pair(t, "tcp")
		release, started := make(chan struct{}), make(chan struct{})
		check.OK(t, l.Park(busy, func(net.Conn) {
			close(started)
			<-release
		}))
		conntest.Send(t, client, "x")
		await.Value(t, started)
		f, outcomes := conntest.Reader()
		for range 10 {
			server, _ := conntest.Pair(t, "tcp")
			check.OK(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- l.Shutdown(ctx) }()
		for range 10 {
			check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		}
		check.Empty(t, result)
		server, _ := conntest.Pair(t, "tcp")
		check.Is(t, l.Park(server, f), ErrClosed)
		check.Is(t, l.Park(server, f), net.ErrClosed)
		if _, err := server.Write([]byte("still owned by the caller")); err != nil {
			t.Fatal(err)
		}
		cancel()
		check.Is(t, await.Value(t, result), context.Canceled)
		close(release)
		check.OK(t, l.Shutdown(t.Context()))
		check.Is(t, l.Park(server, f), ErrClosed)
		check.Empty(t, outcomes)
	})
}

// What has left the backlog is not kept by the room, also if the backlog has outgrown it.
func TestBacklogKeepsNothing(t *testing.T) {
	l := newLot(t, Config{})
	l.SetBatch(2)
	c := &l.workers
	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(ready{pc: new(parkedConn)})
	c.pop() // now it is empty, and has the room
	for range cap(c.room) - 1 {
		c.push(ready{pc: new(parkedConn)})
	}
	c.pop()
	c.push(make([]ready, 3*cap(c.room))...)
	for i, r := range c.room[:cap(c.room)] {
		if r.pc != nil {
			t.Errorf("place %d of %d has a connection", i, cap(c.room))
		}
	}
	c.backlog = c.room[:0]
}
