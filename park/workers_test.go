package park

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
			server, client := pair(t, "tcp")
			done.Add(1)
			must(t, l.Park(server, func(net.Conn) {
				defer done.Done()
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				<-release
				running.Add(-1)
			}))
			send(t, client, "x")
		}
		waitFor(t, "MaxRunning functions are running", func() bool { return running.Load() == bound })
		waitFor(t, "the others are queued", func() bool { return l.Stats().Waiting == conns-bound })
		if s := l.Stats(); s.Running != bound || s.Parked != conns-bound || s.Workers != bound+1 {
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
	f, outcomes := reader()
	var conns []net.Conn
	for i := range 4 {
		server, client := pair(t, "tcp")
		conns = append(conns, server)
		send(t, client, strconv.Itoa(i)) // in time, however slow this test is
		must(t, l.Park(server, f))
		waitFor(t, "queued", func() bool { return l.Stats().Waiting == i+1 })
	}
	if !l.Unpark(conns[1]) {
		t.Error("not parked")
	}
	must(t, l.CloseConn(conns[2]))
	idle, _ := pair(t, "tcp") // without bytes, so its timeout passes
	must(t, l.Park(idle, f))
	clock.Advance(2 * time.Minute)
	waitFor(t, "the idle connection is queued", func() bool { return l.Stats().Waiting == 5 })
	release()
	if o := receive(t, outcomes); o.text != "0" || o.err != nil {
		t.Errorf("%+v", o)
	}
	if o := receive(t, outcomes); !errors.Is(o.err, net.ErrClosed) || o.conn != conns[2] {
		t.Errorf("%+v", o)
	}
	if o := receive(t, outcomes); o.text != "3" || o.err != nil {
		t.Errorf("%+v", o)
	}
	if o := receive(t, outcomes); !errors.Is(o.err, os.ErrDeadlineExceeded) || o.conn != idle {
		t.Errorf("%+v", o)
	}
	waitFor(t, "none is queued", func() bool { return l.Stats().Waiting == 0 })
}

// Goexit in a function at the limit leaves its place to the next connection.
func TestGoexitQueued(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := blockWorker(t, l)
	defer release()
	f, outcomes := reader()
	for i := range 6 {
		server, client := pair(t, "tcp")
		must(t, l.Park(server, func(conn net.Conn) {
			f(conn)
			if i%2 == 0 {
				runtime.Goexit()
			}
		}))
		send(t, client, "x")
		waitFor(t, "queued", func() bool { return l.Stats().Waiting == i+1 })
	}
	release()
	for range 6 {
		if o := receive(t, outcomes); o.text != "x" {
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
		server, client := pair(t, "tcp")
		must(t, l.Park(server, func(net.Conn) {
			all.Done()
			all.Wait()
		}))
		send(t, client, "x")
	}
	all.Wait()
	waitFor(t, "idle workers exit", func() bool { return l.Stats().Workers <= max(2, runtime.GOMAXPROCS(0)) })
	waitFor(t, "one worker is left", func() bool { return l.Stats().Workers == 1 })
}

// A function that calls runtime.Goexit ends its worker; the lot continues with a new one.
func TestGoexit(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	for range 5 {
		server, client := pair(t, "tcp")
		must(t, l.Park(server, func(net.Conn) { runtime.Goexit() }))
		send(t, client, "x")
		waitFor(t, "the function has run", func() bool { s := l.Stats(); return s.Parked+s.Running == 0 })
	}
	server, client := pair(t, "tcp")
	f, outcomes := reader()
	must(t, l.Park(server, f))
	send(t, client, "x")
	receive(t, outcomes)
}

func TestShutdown(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		busy, client := pair(t, "tcp")
		release, started := make(chan struct{}), make(chan struct{})
		must(t, l.Park(busy, func(net.Conn) {
			close(started)
			<-release
		}))
		send(t, client, "x")
		receive(t, started)
		f, outcomes := reader()
		for range 10 {
			server, _ := pair(t, "tcp")
			must(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- l.Shutdown(ctx) }()
		for range 10 {
			wantErr(t, receive(t, outcomes).err, net.ErrClosed)
		}
		wantEmpty(t, result)
		server, _ := pair(t, "tcp")
		wantErr(t, l.Park(server, f), ErrClosed)
		wantErr(t, l.Park(server, f), net.ErrClosed)
		if _, err := server.Write([]byte("still owned by the caller")); err != nil {
			t.Fatal(err)
		}
		cancel()
		wantErr(t, receive(t, result), context.Canceled)
		close(release)
		must(t, l.Shutdown(t.Context()))
		wantErr(t, l.Park(server, f), ErrClosed)
		wantEmpty(t, outcomes)
	})
}
