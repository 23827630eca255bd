package park

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
)

// startLinger makes a stream of a parked connection whose bytes go to f, until a worker lingers for it.
func startLinger(t *testing.T, l *Lot, o Options, last func(net.Conn, []byte, error)) (conn *Conn, client net.Conn) {
	t.Helper()
	raw, client := pair(t, "tcp")
	conn = Wrap(buffered(raw))
	turns := make(chan bool, 1)
	var f func(net.Conn)
	f = func(c net.Conn) {
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err != nil || buf[0] == '.' {
			last(c, buf[:n], err)
			return
		}
		must(t, l.ParkWith(c, o, f))
		turns <- true
	}
	must(t, l.ParkWith(conn, o, f))
	for end := time.Now().Add(soon); ; {
		if time.Now().After(end) {
			t.Fatal("nothing lingers")
		}
		send(t, client, "x")
		get(t, turns)
		s := conn.spot.Load()
		for is, may := false, true; may; runtime.Gosched() {
			s.mu.Lock()
			is, may = s.lingering, s.pace >= steady && s.state != parked
			s.mu.Unlock()
			if is {
				return conn, client
			}
		}
	}
}

// ended is what a function's Read returned.
func ended() (func(net.Conn, []byte, error), chan outcome) {
	c := make(chan outcome, 1)
	return func(conn net.Conn, text []byte, err error) { c <- outcome{string(text), err, conn} }, c
}

// Each way to end a parking ends one that a worker lingers for.
func TestEndOfLingering(t *testing.T) {
	const rounds = 20
	t.Run("bytes", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			_, client := startLinger(t, l, Options{}, last)
			send(t, client, ".")
			if o := get(t, outcomes); o.text != "." || o.err != nil {
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
			wantErr(t, get(t, outcomes).err, io.EOF)
		}
	})
	t.Run("CloseConn", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			conn, _ := startLinger(t, l, Options{}, last)
			must(t, l.CloseConn(conn))
			wantErr(t, get(t, outcomes).err, net.ErrClosed)
		}
	})
	t.Run("Shutdown", func(t *testing.T) {
		for range rounds {
			l := newLot(t, Config{})
			last, outcomes := ended()
			startLinger(t, l, Options{}, last)
			must(t, l.Shutdown(context.Background()))
			wantErr(t, get(t, outcomes).err, net.ErrClosed)
		}
	})
	t.Run("idle timeout", func(t *testing.T) {
		l := newLot(t, Config{})
		last, outcomes := ended()
		startLinger(t, l, Options{IdleTimeout: 20 * time.Millisecond}, last)
		wantErr(t, get(t, outcomes).err, os.ErrDeadlineExceeded)
	})
	t.Run("Unpark", func(t *testing.T) {
		l := newLot(t, Config{})
		for range rounds {
			last, outcomes := ended()
			conn, client := startLinger(t, l, Options{}, last)
			if !l.Unpark(conn) {
				t.Fatal("not parked")
			}
			if !conn.mu.TryLock() {
				t.Fatal("a worker reads")
			}
			conn.mu.Unlock()
			time.AfterFunc(2*keepTime, func() { client.Write([]byte("mine")) })
			buf := make([]byte, 4)
			if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "mine" {
				t.Fatalf("%q, %v", buf, err)
			}
			none(t, outcomes)
		}
	})
}

// A parking that was kept in vain is as any: the connection holds no buffer, and no worker.
func TestIdleAfterLingering(t *testing.T) {
	l := newLot(t, Config{})
	last, outcomes := ended()
	conn, client := startLinger(t, l, Options{}, last)
	s := conn.spot.Load()
	until(t, "the worker leaves the connection", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.state == parked && s.runner == nil
	})
	if conn.holds() {
		t.Error("a buffer is held")
	}
	if l.crew.lingering != 0 {
		t.Errorf("%d workers linger", l.crew.lingering)
	}
	send(t, client, ".")
	if o := get(t, outcomes); o.text != "." || o.err != nil {
		t.Fatalf("%+v", o)
	}
}

// A function may go on after Park, and even wait for the next one. The connection holds the next bytes already, in
// the Conn's buffer or in the connection inside, of which the port would say nothing.
func TestFunctionGoesOnAfterPark(t *testing.T) {
	for _, size := range []int{64, 2 * aheadSize} {
		l := newLot(t, Config{})
		raw, client := pair(t, "tcp")
		in := bufio.NewReaderSize(raw, 4*aheadSize)
		text := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		send(t, client, string(text))
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
			s := conn.(*Conn).spot.Load()
			s.mu.Lock()
			s.pace = steady // as in a stream, of which Park does not look ahead
			s.mu.Unlock()
			must(t, l.Park(conn, f))
			<-parked // by the next one
			parked <- true
		}
		must(t, l.Park(&bufferedConn{raw, in}, f))
		if get(t, done) != string(text) {
			t.Fatal("other bytes")
		}
	}
}

// A function that ends its goroutine after Park does not end its connection.
func TestGoexitWithParkingKept(t *testing.T) {
	l := newLot(t, Config{})
	raw, client := pair(t, "tcp")
	in := bufio.NewReader(raw)
	send(t, client, "abcdefgh")
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
		must(t, l.Park(conn, f))
		got <- buf[0]
		runtime.Goexit()
	}
	conn := Wrap(&bufferedConn{raw, in})
	must(t, l.Park(conn, f))
	for i := range 8 {
		if b := get(t, got); b != "abcdefgh"[i] {
			t.Fatalf("%c", b)
		}
	}
	until(t, "the connection is parked", func() bool { s := l.Stats(); return s.Running == 0 && s.Parked == 1 })
	if !l.Unpark(conn) {
		t.Error("not parked")
	}
}

// endless is a connection whose Read always has a byte.
type endless struct{ net.Conn }

func (e *endless) NetConn() net.Conn { return e.Conn }

func (e *endless) Read(p []byte) (int, error) { return copy(p, "x"), nil }

// Under a bound a connection that always holds bytes leaves turns to others, and without one it is not posted for
// each turn.
func TestStreamsTakeTurns(t *testing.T) {
	const turns = 10000
	l := newLot(t, Config{MaxRunning: 1})
	gate, counts := make(chan bool), make(chan [2]int, 2)
	var n [2]int // of the only worker
	for i := range n {
		raw, _ := pair(t, "tcp")
		var f func(net.Conn)
		f = func(conn net.Conn) {
			<-gate
			if n[i]++; n[i] == turns {
				counts <- n
				conn.Close()
				return
			}
			if _, err := conn.Read(make([]byte, aheadSize)); err != nil {
				t.Error(err)
			}
			must(t, l.Park(conn, f))
		}
		must(t, l.Park(&endless{raw}, f))
	}
	close(gate)
	if c := get(t, counts); min(c[0], c[1]) < turns/4 {
		t.Errorf("one had %d turns, the other %d", c[0], c[1])
	}
	get(t, counts)
	if s, p := l.Stats(), l.Port().Stats(); p.PostsDequeued > s.Parks/2 {
		t.Errorf("%d posts for %d turns", p.PostsDequeued, s.Parks)
	}
}
