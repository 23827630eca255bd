package parking

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// tlsPairWithBytesAhead returns a TLS connection whose server holds the text of a second record. Both records arrived
// in one segment, and the server has read the first.
func tlsPairWithBytesAhead(t testing.TB, text string) (server conntest.TLSConn, client *tls.Conn) {
	t.Helper()
	server, client, recorder := conntest.TLSKind{Version: tls.VersionTLS13}.Pair(t)
	recorder.On = true
	conntest.Send(t, client, "first")
	conntest.Send(t, client, text)
	if _, err := recorder.Conn.Write(recorder.Held); err != nil {
		t.Fatal(err)
	}
	recorder.On = false
	buf := make([]byte, len("first"))
	if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "first" {
		t.Fatalf("%q, %v", buf, err)
	}
	return server, client
}

// blockWorker keeps the only worker of a lot busy until release is called.
func blockWorker(t testing.TB, l *Lot) (release func()) {
	t.Helper()
	server, client := conntest.Pair(t, "tcp")
	running, end := make(chan struct{}), make(chan struct{})
	check.OK(t, l.Park(server, func(net.Conn) {
		close(running)
		<-end
	}))
	conntest.Send(t, client, "x")
	await.Value(t, running)
	return sync.OnceFunc(func() { close(end) })
}

// If a connection was parked without Wrap, bytes that were read ahead are in a Conn that only the function receives. So
// Unpark returns false, and the function receives the bytes.
func TestUnparkUnwrappedWithBytesAhead(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := newLot(t, Config{MaxRunning: 1})
		release := blockWorker(t, l)
		defer release()
		server, _ := tlsPairWithBytesAhead(t, "second")
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		if closed {
			server.Close()
		}
		if l.Unpark(server) {
			t.Fatal("Unpark succeeded, and the bytes are lost")
		}
		release()
		if o := await.Value(t, outcomes); o.Text != "second" || o.Err != nil {
			t.Fatalf("%+v", o)
		}
	}
}

// Unpark of a wrapped connection takes it back with the bytes that were read ahead.
func TestUnparkWrappedWithBytesAhead(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := blockWorker(t, l)
	defer release()
	server, _ := tlsPairWithBytesAhead(t, "second")
	conn := Wrap(server)
	check.OK(t, l.Park(conn, func(net.Conn) { t.Error("run") }))
	if !l.Unpark(conn) {
		t.Fatal("not parked")
	}
	buf := make([]byte, 6)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "second" {
		t.Fatalf("%q, %v", buf, err)
	}
}

// A second Park of a connection fails before it reads anything ahead.
func TestParkTwiceWithBytesAhead(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := blockWorker(t, l)
	defer release()
	in := bufio.NewReaderSize(nil, 2*ReadAheadSize)
	raw, client := conntest.Pair(t, "tcp")
	in.Reset(raw)
	server := conntest.Buffer(raw, in)
	text := bytes.Repeat([]byte("0123456789abcdef"), (ReadAheadSize+4096)/16)
	if _, err := client.Write(text); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Peek(len(text)); err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	check.OK(t, l.Park(server, func(conn net.Conn) {
		buf := make([]byte, len(text))
		io.ReadFull(conn, buf)
		got <- buf
	}))
	check.Is(t, l.Park(server, func(net.Conn) { t.Error("run") }), ErrParked)
	release()
	if !bytes.Equal(await.Value(t, got), text) {
		t.Fatal("received wrong bytes")
	}
}

// A oneReadConn returns the text and err from its first Reads. err comes with the last bytes of the text.
type oneReadConn struct {
	net.Conn
	text string
	err  error
}

func (o *oneReadConn) NetConn() net.Conn { return o.Conn }

func (o *oneReadConn) Read(p []byte) (int, error) {
	if o.text == "" {
		return o.Conn.Read(p)
	}
	n, err := copy(p, o.text), o.err
	o.text, o.err = o.text[n:], nil
	return n, err
}

// An error that was read ahead together with bytes is returned once, after the bytes, whatever the size of the Reads.
func TestErrorAfterBytesAhead(t *testing.T) {
	failed := errors.New("read failed")
	for _, size := range []int{1, 2, 3, 100} {
		l := newLot(t, Config{})
		server, client := conntest.Pair(t, "tcp")
		type result struct {
			text string
			err  error
		}
		results := make(chan result, 10)
		var f func(net.Conn)
		f = func(conn net.Conn) {
			buf := make([]byte, size)
			n, err := conn.Read(buf)
			results <- result{string(buf[:n]), err}
			if err := l.Park(conn, f); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		check.OK(t, l.Park(&oneReadConn{server, "abcde", failed}, f))
		text := ""
		var r result
		for r.err == nil {
			r = await.Value(t, results)
			text += r.text
		}
		if text != "abcde" || r.err != failed {
			t.Fatalf("%q, %v", text, r.err)
		}
		conntest.Send(t, client, "z")
		if r := await.Value(t, results); r.text != "z" || r.err != nil {
			t.Fatalf("%+v", r)
		}
	}
}

// A panickingDeadlineConn is a connection whose SetReadDeadline panics.
type panickingDeadlineConn struct{ *conntest.BufferedConn }

func (panickingDeadlineConn) SetReadDeadline(time.Time) error { panic("SetReadDeadline panics") }

// After a method of the connection has panicked or failed in Park, the lot can still be shut down.
func TestPanicInPark(t *testing.T) {
	l := newLot(t, Config{})
	raw, _ := conntest.Pair(t, "tcp")
	func() {
		defer func() {
			if v := recover(); v != "SetReadDeadline panics" {
				t.Errorf("recovered %v", v)
			}
		}()
		l.Park(&panickingDeadlineConn{conntest.Buffered(raw).(*conntest.BufferedConn)}, func(net.Conn) { t.Error("run") })
	}()
	raw.Close()
	check.Is(t, l.Park(conntest.Buffered(raw), func(net.Conn) { t.Error("run") }), net.ErrClosed)
	check.OK(t, l.Shutdown(t.Context()))
}

// Read after Close returns the error of the wrapped connection and no bytes that were read ahead.
func TestReadAfterClose(t *testing.T) {
	l := newLot(t, Config{})
	raw, _ := conntest.Pair(t, "tcp")
	c := Wrap(&oneReadConn{Conn: raw, text: string(make([]byte, ReadAheadSize))})
	if ready, err := c.readAhead(l); !ready || err != nil || !HasBytesAhead(c) {
		t.Fatal("no bytes were read ahead")
	}
	check.OK(t, c.Close())
	if HasBytesAhead(c) {
		t.Error("the Conn still has its buffer")
	}
	_, err := c.Read(make([]byte, 10))
	check.Is(t, err, net.ErrClosed)
}

// Close discards bytes that were read ahead, and returns the buffer to the pool once, also during concurrent Reads.
func TestCloseWithBytesAhead(t *testing.T) {
	l := newLot(t, Config{})
	for range 200 {
		raw, _ := conntest.Pair(t, "tcp")
		o := &oneReadConn{Conn: raw, text: string(make([]byte, 1000))}
		c := Wrap(o)
		if ready, err := c.readAhead(l); !ready || err != nil || !HasBytesAhead(c) {
			t.Fatal("no bytes were read ahead")
		}
		check.OK(t, raw.SetReadDeadline(time.Time{}))
		a := c.ahead
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				buf := make([]byte, 10)
				for {
					if _, err := c.Read(buf); err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		all.Go(func() { c.Close() })
		all.Wait()
		if HasBytesAhead(c) || a.from != 0 || a.to != 0 {
			t.Fatal("the Conn still has its buffer")
		}
	}
}

// A connection holds no buffer while it is idle, nor after its bytes have been read.
func TestNoBufferWhileIdle(t *testing.T) {
	l := newLot(t, Config{})
	server, _ := tlsPairWithBytesAhead(t, "second")
	conn := Wrap(server)
	done := make(chan struct{})
	check.OK(t, l.Park(conn, func(net.Conn) {
		defer close(done)
		buf := make([]byte, 4)
		io.ReadFull(conn, buf)
		if !HasBytesAhead(conn) {
			t.Error("the buffer was released with two bytes in it")
		}
		io.ReadFull(conn, buf[:2])
		if HasBytesAhead(conn) {
			t.Error("the drained Conn still has its buffer")
		}
		check.OK(t, l.Park(conn, func(net.Conn) {}))
		if HasBytesAhead(conn) {
			t.Error("the parked Conn has a buffer")
		}
	}))
	await.Value(t, done)
}

// Finding the socket of a connection of package net allocates what its SyscallConn method does.
func TestFindAllocs(t *testing.T) {
	l := newLot(t, Config{})
	server, _ := conntest.Pair(t, "tcp")
	var raw syscall.RawConn // keeps the allocation
	want := testing.AllocsPerRun(100, func() { raw, _ = server.(*net.TCPConn).SyscallConn() })
	check.OK(t, raw.Control(func(uintptr) {}))
	got := testing.AllocsPerRun(100, func() {
		if _, err := l.Find(server); err != nil {
			t.Error(err)
		}
	})
	if got > want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}
