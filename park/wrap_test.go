package park

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
)

// An opaqueConn has none of the ways to the connection below it.
type opaqueConn struct{ hidden net.Conn }

func (o opaqueConn) Read(p []byte) (int, error)         { return o.hidden.Read(p) }
func (o opaqueConn) Write(p []byte) (int, error)        { return o.hidden.Write(p) }
func (o opaqueConn) Close() error                       { return o.hidden.Close() }
func (o opaqueConn) LocalAddr() net.Addr                { return o.hidden.LocalAddr() }
func (o opaqueConn) RemoteAddr() net.Addr               { return o.hidden.RemoteAddr() }
func (o opaqueConn) SetDeadline(t time.Time) error      { return o.hidden.SetDeadline(t) }
func (o opaqueConn) SetReadDeadline(t time.Time) error  { return o.hidden.SetReadDeadline(t) }
func (o opaqueConn) SetWriteDeadline(t time.Time) error { return o.hidden.SetWriteDeadline(t) }

// An unfitConn returns an error of its own after its read deadline has passed. So it may hold bytes that it does not
// return.
type unfitConn struct{ net.Conn }

var errOwn = errors.New("own error")

func (u *unfitConn) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errOwn
	}
	return n, err
}

// A headerConn reads a line, the header, when it is first used, as go-proxyproto does. A deadline that passes makes it
// take the header for missing. It holds the bytes that came with the header.
type headerConn struct {
	opaqueConn
	once   sync.Once
	in     *bufio.Reader
	header string
}

func newHeaderConn(conn net.Conn) net.Conn {
	return &headerConn{opaqueConn: opaqueConn{conn}, in: bufio.NewReader(conn)}
}

func (h *headerConn) Raw() net.Conn { return h.hidden }

func (h *headerConn) TCPConn() (*net.TCPConn, bool) {
	c, ok := h.hidden.(*net.TCPConn)
	return c, ok
}

func (h *headerConn) readHeader() {
	h.once.Do(func() { h.header, _ = h.in.ReadString('\n') })
}

func (h *headerConn) Read(p []byte) (int, error) {
	h.readHeader()
	return h.in.Read(p)
}

func (h *headerConn) RemoteAddr() net.Addr {
	h.readHeader()
	return h.opaqueConn.RemoteAddr()
}

// A wrappingListener wraps each connection that it accepts.
type wrappingListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(conn), nil
}

type embeddingConn struct{ net.Conn }

// echoOnce answers what it reads and parks the connection again. It sends each error to failed.
func echoOnce(l *Lot, failed chan<- error) func(net.Conn) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		if err == nil {
			err = l.Park(conn, serve)
		}
		if err != nil {
			conn.Close()
			failed <- err
		}
	}
	return serve
}

func expect(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	conn.SetReadDeadline(time.Now().Add(timeout))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("%q, %v; want %q", buf, err, text)
	}
}

// Wrapped connections are parked, before their first byte and between calls, and bytes that a wrapper holds are found.
func TestParkWrapped(t *testing.T) {
	for name, c := range map[string]struct {
		wrap   func(net.Conn) net.Conn
		header string
		unwrap func(net.Conn) net.Conn
	}{
		"embedded":        {func(c net.Conn) net.Conn { return embeddingConn{c} }, "", nil},
		"header":          {newHeaderConn, "header\n", nil},
		"header, wrapped": {func(c net.Conn) net.Conn { return &embeddingConn{newHeaderConn(c)} }, "header\n", nil},
		"hook": {func(c net.Conn) net.Conn { return opaqueConn{c} }, "", func(c net.Conn) net.Conn {
			if o, ok := c.(opaqueConn); ok {
				return o.hidden
			}
			return nil
		}},
	} {
		for _, fresh := range []bool{true, false} {
			l := newLot(t, Config{Unwrap: c.unwrap})
			failed := make(chan error, 10)
			for i, first := range []string{"", "first"} {
				server, client := pair(t, "tcp")
				if !fresh { // the header and what follows come in one segment, and are read before Park
					send(t, client, c.header+first)
				}
				wrapped := c.wrap(server)
				if !fresh {
					wrapped.RemoteAddr()
				}
				must(t, l.ParkWith(wrapped, Options{fresh: fresh}, echoOnce(l, failed)))
				if fresh {
					waitFor(t, name+": parked", func() bool { return l.Stats().Parked == i+1 && l.Stats().Running == 0 })
					send(t, client, c.header+first)
				}
				expect(t, client, first)
				for range 10 {
					waitFor(t, name+": parked", func() bool { return l.Stats().Parked == i+1 && l.Stats().Running == 0 })
					send(t, client, "text")
					expect(t, client, "text")
				}
			}
			must(t, l.Shutdown(t.Context()))
			if s := l.Stats(); s.Unparkable != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}

// A header that comes in two parts, and before the socket below a TLS connection has its handshake.
func TestParkTLSOverHeader(t *testing.T) {
	l := newLot(t, Config{})
	server, client := pair(t, "tcp")
	failed := make(chan error, 10)
	secure := tls.Server(newHeaderConn(server), &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	must(t, l.ParkWith(secure, Options{fresh: true}, echoOnce(l, failed)))
	send(t, client, "hea")
	send(t, client, "der\n")
	out := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	for range 10 {
		send(t, out, "text")
		expect(t, out, "text")
		waitFor(t, "parked", func() bool { return l.Stats().Parked == 1 && l.Stats().Running == 0 })
	}
}

// A TLS connection may be parked before its handshake even if the wrapper below it holds the handshake's beginning.
func TestParkTLSOverBytes(t *testing.T) {
	l := newLot(t, Config{})
	server, client := pair(t, "tcp")
	in := bufio.NewReader(server)
	go func() {
		out := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		out.Write([]byte("text"))
	}()
	if _, err := in.Peek(100); err != nil {
		t.Fatal(err)
	}
	f, outcomes := reader()
	must(t, l.Park(tls.Server(&bufferedConn{server, in}, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}), f))
	if o := receive(t, outcomes); o.text != "text" {
		t.Fatalf("%+v", o)
	}
}

// A connection that cannot be parked stays with the caller, is counted, and named once in the log.
func TestUnparkable(t *testing.T) {
	var logged bytes.Buffer
	l := newLot(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	none := func(net.Conn) { t.Error("run") }
	n := uint64(0)
	for _, wrap := range []func(net.Conn) net.Conn{
		func(c net.Conn) net.Conn { return opaqueConn{c} },
		func(c net.Conn) net.Conn { return &unfitConn{Conn: c} },
		func(c net.Conn) net.Conn { return Wrap(&unfitConn{Conn: c}) },
		func(c net.Conn) net.Conn { return embeddingConn{&unfitConn{Conn: c}} },
	} {
		for range 2 {
			server, client := pair(t, "tcp")
			conn := wrap(server)
			err := l.Park(conn, none)
			wantErr(t, err, ErrUnparkable)
			wantErr(t, err, socknotify.ErrInvalid)
			n++
			send(t, client, "text")
			expect(t, conn, "text") // the deadline of reading ahead is gone
			if s := l.Stats(); s.Unparkable != n || s.Parks != 0 || s.Parked != 0 {
				t.Fatalf("%+v, want %d", s, n)
			}
		}
	}
	text := logged.String()
	for _, part := range []string{"type=park.opaqueConn", "type=*park.unfitConn", "type=park.embeddingConn", "own error",
		"remedy=", "level=WARN"} {
		if !strings.Contains(text, part) {
			t.Errorf("the log does not say %q:\n%s", part, text)
		}
	}
	if n := strings.Count(text, "\n"); n != 3 {
		t.Errorf("%d lines in the log, want 3:\n%s", n, text)
	}
}

// A panickingConn panics in the methods that are on.
type panickingConn struct {
	net.Conn
	deadline, close *atomic.Bool
}

func (p panickingConn) SetReadDeadline(t time.Time) error {
	if p.deadline.Load() {
		panic("SetReadDeadline panics")
	}
	return p.Conn.SetReadDeadline(t)
}

func (p panickingConn) Close() error {
	p.Conn.Close()
	if p.close.Load() {
		panic("Close panics")
	}
	return nil
}

// A panic in a method that the lot calls is logged. The connection is closed, and its function runs.
func TestMethodPanics(t *testing.T) {
	for _, name := range []string{"SetReadDeadline", "Close", "both"} {
		var logged testLog
		l := newLot(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		server, _ := pair(t, "tcp")
		c := panickingConn{server, new(atomic.Bool), new(atomic.Bool)}
		f, outcomes := reader()
		var o outcome
		for idle := 50 * time.Millisecond; ; idle *= 2 {
			if name == "Close" {
				idle = -1
			}
			must(t, l.ParkWith(c, Options{IdleTimeout: idle}, f))
			c.deadline.Store(name != "Close")
			c.close.Store(name != "SetReadDeadline")
			if name == "Close" {
				must(t, l.Close())
			}
			if o = receive(t, outcomes); !errors.Is(o.err, os.ErrDeadlineExceeded) || idle > timeout {
				break
			}
			c.deadline.Store(false) // the timeout was over before the methods began to panic
			c.close.Store(false)
		}
		if !errors.Is(o.err, net.ErrClosed) {
			t.Errorf("%s: %+v", name, o)
		}
		c.close.Store(false)
		text := logged.String()
		for _, part := range []string{"SetReadDeadline panics", "Close panics"} {
			method, _, _ := strings.Cut(part, " ")
			if want := name == "both" || name == method; strings.Contains(text, part) != want {
				t.Errorf("%s: the log says %q: %v\n%s", name, part, !want, text)
			}
		}
		if !strings.Contains(text, "wrap_test.go") || !strings.Contains(text, "type=park.panickingConn") {
			t.Errorf("%s: the log has no stack or type:\n%s", name, text)
		}
	}
}
