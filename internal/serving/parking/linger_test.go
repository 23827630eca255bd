package parking

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// startLinger sends bytes to a parked connection until a worker lingers for it. last is called for a byte '.' or an
// error.
func startLinger(t *testing.T, l *Lot, o Options, last func(net.Conn, []byte, error)) (conn *Conn, client net.Conn) {
	t.Helper()
	raw, client := conntest.Pair(t, "tcp")
	conn = Wrap(conntest.Buffered(raw))
	calls := make(chan bool, 1)
	var f func(net.Conn)
	f = func(c net.Conn) {
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err != nil || buf[0] == '.' {
			last(c, buf[:n], err)
			return
		}
		check.OK(t, l.ParkWith(c, o, f))
		calls <- true
	}
	check.OK(t, l.ParkWith(conn, o, f))
	for end := time.Now().Add(conntest.Timeout); ; {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for a worker to linger")
		}
		conntest.Send(t, client, "x")
		await.Value(t, calls)
		pc := conn.parkedConn.Load()
		for is, may := false, true; may; runtime.Gosched() {
			pc.mu.Lock()
			is, may = pc.keeping == keepLingering, pc.pace >= steadyPace && pc.state != parked
			pc.mu.Unlock()
			if is {
				return conn, client
			}
		}
	}
}

// ended returns a function for startLinger and the channel that receives its outcome.
func ended() (func(net.Conn, []byte, error), chan conntest.Outcome) {
	c := make(chan conntest.Outcome, 1)
	return func(conn net.Conn, text []byte, err error) {
		c <- conntest.Outcome{Text: string(text), Err: err, Conn: conn}
	}, c
}

// Each way to end a parking also works while a worker lingers.
func TestEndOfLingering(t *testing.T) {
	const rounds = 20
	t.Run("bytes", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			_, client := startLinger(t, l, Options{}, last)
			conntest.Send(t, client, ".")
			if o := await.Value(t, outcomes); o.Text != "." || o.Err != nil {
				t.Fatalf("%+v", o)
			}
		}
	})
	t.Run("peer closes", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			_, client := startLinger(t, l, Options{}, last)
			client.Close()
			check.Is(t, await.Value(t, outcomes).Err, io.EOF)
		}
	})
	t.Run("CloseConn", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			conn, _ := startLinger(t, l, Options{}, last)
			check.OK(t, l.CloseConn(conn))
			check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		}
	})
	t.Run("Shutdown", func(t *testing.T) {
		for range rounds {
			l := newLot(t, Config{})
			last, outcomes := ended()
			startLinger(t, l, Options{}, last)
			check.OK(t, l.Shutdown(context.Background()))
			check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		}
	})
	t.Run("idle timeout", func(t *testing.T) {
		l := newLot(t, Config{})
		last, outcomes := ended()
		startLinger(t, l, Options{IdleTimeout: 20 * time.Millisecond}, last)
		check.Is(t, await.Value(t, outcomes).Err, os.ErrDeadlineExceeded)
	})
	t.Run("Unpark", func(t *testing.T) {
		clock := testclock.Install(t)
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			conn, client := startLinger(t, l, Options{}, last)
			if !l.Unpark(conn) {
				t.Fatal("not parked")
			}
			if !conn.mu.TryLock() {
				t.Fatal("a worker is still reading")
			}
			conn.mu.Unlock()
			go func() {
				clock.Advance(2 * keepTime)
				client.Write([]byte("mine"))
			}()
			buf := make([]byte, 4)
			if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "mine" {
				t.Fatalf("%q, %v", buf, err)
			}
			check.Empty(t, outcomes)
		}
	})
}

// After a worker has lingered without receiving bytes, the connection needs no buffer and no worker.
func TestIdleAfterLingering(t *testing.T) {
	l := newLot(t, Config{})
	last, outcomes := ended()
	conn, client := startLinger(t, l, Options{}, last)
	pc := conn.parkedConn.Load()
	await.Until(t, "the worker leaves the connection", func() bool {
		pc.mu.Lock()
		defer pc.mu.Unlock()
		return pc.state == parked && pc.runner == nil
	})
	if HasBytesAhead(conn) {
		t.Error("the connection has a buffer")
	}
	if l.workers.lingering != 0 {
		t.Errorf("%d workers linger", l.workers.lingering)
	}
	conntest.Send(t, client, ".")
	if o := await.Value(t, outcomes); o.Text != "." || o.Err != nil {
		t.Fatalf("%+v", o)
	}
}

// A function may continue to run after Park, and even wait for the next call. The next bytes have been read ahead
// already, into the Conn's buffer or by the wrapped connection, so the port would report nothing.
func TestFunctionRunsAfterPark(t *testing.T) {
	for _, size := range []int{64, 2 * ReadAheadSize} {
		l := newLot(t, Config{})
		raw, client := conntest.Pair(t, "tcp")
		in := bufio.NewReaderSize(raw, 4*ReadAheadSize)
		text := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		conntest.Send(t, client, string(text))
		if _, err := in.Peek(len(text)); err != nil {
			t.Fatal(err)
		}
		parked, done := make(chan bool, 2*size), make(chan string, 1)
		var got []byte
		var f func(net.Conn)
		f = func(conn net.Conn) {
			buf := make([]byte, 8<<10)
			if size == 64 {
				buf = buf[:16]
			}
			n, err := conn.Read(buf)
			if err != nil {
				t.Error(err)
			}
			if got = append(got, buf[:n]...); len(got) == len(text) {
				parked <- true
				done <- string(got)
				return
			}
			pc := conn.(*Conn).parkedConn.Load()
			pc.mu.Lock()
			pc.pace = steadyPace // as in a stream, where Park does not read ahead
			pc.mu.Unlock()
			check.OK(t, l.Park(conn, f))
			<-parked // by the next call
			parked <- true
		}
		check.OK(t, l.Park(conntest.Buffer(raw, in), f))
		if await.Value(t, done) != string(text) {
			t.Fatal("received wrong bytes")
		}
	}
}

// A function that calls runtime.Goexit after Park does not end its connection.
func TestGoexitWhileKept(t *testing.T) {
	l := newLot(t, Config{})
	raw, client := conntest.Pair(t, "tcp")
	in := bufio.NewReader(raw)
	conntest.Send(t, client, "abcdefgh")
	if _, err := in.Peek(8); err != nil {
		t.Fatal(err)
	}
	got := make(chan byte, 8)
	var f func(net.Conn)
	f = func(conn net.Conn) {
		var buf [1]byte
		if _, err := io.ReadFull(conn, buf[:]); err != nil {
			t.Error(err)
		}
		check.OK(t, l.Park(conn, f))
		got <- buf[0]
		runtime.Goexit()
	}
	conn := Wrap(conntest.Buffer(raw, in))
	check.OK(t, l.Park(conn, f))
	for i := range 8 {
		if b := await.Value(t, got); b != "abcdefgh"[i] {
			t.Fatalf("%c", b)
		}
	}
	await.Until(t, "the connection is parked", func() bool { s := l.Counts(); return s.Running == 0 && s.Parked == 1 })
	if !l.Unpark(conn) {
		t.Error("not parked")
	}
}

// An endlessConn is a connection whose Read always returns a byte.
type endlessConn struct{ net.Conn }

func (e *endlessConn) NetConn() net.Conn { return e.Conn }

func (e *endlessConn) Read(p []byte) (int, error) { return copy(p, "x"), nil }

// With MaxRunning 1, two connections that always hold bytes share the worker, and not every call costs a post.
func TestStreamsShareWorker(t *testing.T) {
	const calls = 10000
	l := newLot(t, Config{MaxRunning: 1})
	gate, counts := make(chan bool), make(chan [2]int, 2)
	var n [2]int // used only by the one worker
	for i := range n {
		raw, _ := conntest.Pair(t, "tcp")
		var f func(net.Conn)
		f = func(conn net.Conn) {
			<-gate
			if n[i]++; n[i] == calls {
				counts <- n
				conn.Close()
				return
			}
			if _, err := conn.Read(make([]byte, ReadAheadSize)); err != nil {
				t.Error(err)
			}
			check.OK(t, l.Park(conn, f))
		}
		check.OK(t, l.Park(&endlessConn{raw}, f))
	}
	close(gate)
	if c := await.Value(t, counts); min(c[0], c[1]) < calls/4 {
		t.Errorf("one connection had %d calls, the other %d", c[0], c[1])
	}
	await.Value(t, counts)
	if s, p := l.Counts(), l.Port().Stats(); p.PostsDequeued > s.Parks/2 {
		t.Errorf("%d posts for %d calls", p.PostsDequeued, s.Parks)
	}
}
