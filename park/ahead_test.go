package park

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// heldTLS makes a TLS connection that holds the text of a second record: one segment had both, and the first was
// read.
func heldTLS(t testing.TB, text string) (server, client *tls.Conn) {
	t.Helper()
	server, client, h := tlsPair(t, tls.VersionTLS13)
	h.on = true
	send(t, client, "first")
	send(t, client, text)
	if _, err := h.Conn.Write(h.held); err != nil {
		t.Fatal(err)
	}
	h.on = false
	buf := make([]byte, len("first"))
	if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "first" {
		t.Fatalf("%q, %v", buf, err)
	}
	return server, client
}

// block keeps the only worker of a lot busy until release is called.
func block(t testing.TB, l *Lot) (release func()) {
	t.Helper()
	server, client := pair(t, "tcp")
	running, end := make(chan struct{}), make(chan struct{})
	must(t, l.Park(server, func(net.Conn) {
		close(running)
		<-end
	}))
	send(t, client, "x")
	get(t, running)
	return sync.OnceFunc(func() { close(end) })
}

// Bytes that parking has read ahead of a connection that was not wrapped before are in a Conn that only the function
// is given. Unpark reports that the function has begun, and the function gets them.
func TestUnparkBareWithBytesAhead(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := newLot(t, Config{MaxRunning: 1})
		release := block(t, l)
		defer release()
		server, _ := heldTLS(t, "second")
		f, outcomes := reader()
		must(t, l.Park(server, f))
		if closed {
			server.Close()
		}
		if l.Unpark(server) {
			t.Fatal("unparked, and its bytes are lost")
		}
		release()
		if o := get(t, outcomes); o.text != "second" || o.err != nil {
			t.Fatalf("%+v", o)
		}
	}
}

// A wrapped one is taken back with its bytes.
func TestUnparkWrappedWithBytesAhead(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := block(t, l)
	defer release()
	server, _ := heldTLS(t, "second")
	conn := Wrap(server)
	must(t, l.Park(conn, func(net.Conn) { t.Error("run") }))
	if !l.Unpark(conn) {
		t.Fatal("not parked")
	}
	buf := make([]byte, 6)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "second" {
		t.Fatalf("%q, %v", buf, err)
	}
}

// A second Park of a connection is refused before it reads anything ahead.
func TestParkTwiceWithBytesAhead(t *testing.T) {
	l := newLot(t, Config{MaxRunning: 1})
	release := block(t, l)
	defer release()
	in := bufio.NewReaderSize(nil, 2*aheadSize)
	raw, client := pair(t, "tcp")
	in.Reset(raw)
	server := &bufferedConn{raw, in}
	text := bytes.Repeat([]byte("0123456789abcdef"), (aheadSize+4096)/16)
	if _, err := client.Write(text); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Peek(len(text)); err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	must(t, l.Park(server, func(conn net.Conn) {
		buf := make([]byte, len(text))
		io.ReadFull(conn, buf)
		got <- buf
	}))
	wantErr(t, l.Park(server, func(net.Conn) { t.Error("run") }), ErrParked)
	release()
	if !bytes.Equal(get(t, got), text) {
		t.Fatal("other bytes")
	}
}

// once is a connection of which one Read returns bytes and an error.
type once struct {
	net.Conn
	text string
	err  error
}

func (o *once) NetConn() net.Conn { return o.Conn }

func (o *once) Read(p []byte) (int, error) {
	if o.text == "" {
		return o.Conn.Read(p)
	}
	n, err := copy(p, o.text), o.err
	o.text, o.err = o.text[n:], nil
	return n, err
}

// An error that came with the bytes is returned after them, once, in whatever pieces they are read.
func TestErrorBehindBytesAhead(t *testing.T) {
	failed := errors.New("an error of once")
	for _, size := range []int{1, 2, 3, 100} {
		l := newLot(t, Config{})
		server, client := pair(t, "tcp")
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
		must(t, l.Park(&once{server, "abcde", failed}, f))
		text := ""
		var r result
		for r.err == nil {
			r = get(t, results)
			text += r.text
		}
		if text != "abcde" || r.err != failed {
			t.Fatalf("%q, %v", text, r.err)
		}
		send(t, client, "z")
		if r := get(t, results); r.text != "z" || r.err != nil {
			t.Fatalf("%+v", r)
		}
	}
}

// faithless is a connection whose SetReadDeadline panics.
type faithless struct{ *bufferedConn }

func (faithless) SetReadDeadline(time.Time) error { panic("a deadline's panic") }

// A panic of the connection's own methods in Park leaves the lot able to end, and so does an error.
func TestPanicInPark(t *testing.T) {
	l := newLot(t, Config{})
	raw, _ := pair(t, "tcp")
	func() {
		defer func() {
			if v := recover(); v != "a deadline's panic" {
				t.Errorf("recovered %v", v)
			}
		}()
		l.Park(&faithless{buffered(raw).(*bufferedConn)}, func(net.Conn) { t.Error("run") })
	}()
	raw.Close()
	wantErr(t, l.Park(buffered(raw), func(net.Conn) { t.Error("run") }), net.ErrClosed)
	must(t, l.Shutdown(t.Context()))
}

// Read after Close returns the error of the connection inside, and no bytes that were read ahead.
func TestReadAfterClose(t *testing.T) {
	raw, _ := pair(t, "tcp")
	c := Wrap(&once{Conn: raw, text: string(make([]byte, aheadSize))})
	if !c.lookAhead() || !c.holds() {
		t.Fatal("nothing is held")
	}
	must(t, c.Close())
	if c.holds() {
		t.Error("the buffer is held")
	}
	_, err := c.Read(make([]byte, 10))
	wantErr(t, err, net.ErrClosed)
}

// Close drops what is held, and the buffer is given back once, whatever Reads there are at the same time.
func TestCloseWithBytesAhead(t *testing.T) {
	for range 200 {
		raw, _ := pair(t, "tcp")
		o := &once{Conn: raw, text: string(make([]byte, 1000))}
		c := Wrap(o)
		if !c.lookAhead() || !c.holds() {
			t.Fatal("nothing is held")
		}
		must(t, raw.SetReadDeadline(time.Time{}))
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
		if c.holds() || a.from != 0 || a.to != 0 {
			t.Fatal("the buffer is held")
		}
	}
}

// An idle connection holds no buffer, nor does one that was drained.
func TestNoBufferWhileIdle(t *testing.T) {
	l := newLot(t, Config{})
	server, _ := heldTLS(t, "second")
	conn := Wrap(server)
	done := make(chan struct{})
	must(t, l.Park(conn, func(net.Conn) {
		defer close(done)
		buf := make([]byte, 4)
		io.ReadFull(conn, buf)
		if !conn.holds() {
			t.Error("two bytes are left")
		}
		io.ReadFull(conn, buf[:2])
		if conn.holds() {
			t.Error("a buffer is held")
		}
		must(t, l.Park(conn, func(net.Conn) {}))
		if conn.holds() {
			t.Error("a buffer is held while parked")
		}
	}))
	get(t, done)
}
