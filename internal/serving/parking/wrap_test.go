package parking

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
)

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

// Wrapped connections are parked, before their first byte and between calls, and bytes that a wrapper holds are found.
func TestParkWrapped(t *testing.T) {
	for name, c := range map[string]struct {
		wrap   func(net.Conn) net.Conn
		header string
		unwrap func(net.Conn) net.Conn
	}{
		"embedded":        {conntest.Embedding, "", nil},
		"header":          {conntest.NewHeaderConn, "header\n", nil},
		"header, wrapped": {func(c net.Conn) net.Conn { return conntest.EmbeddingPointer(conntest.NewHeaderConn(c)) }, "header\n", nil},
		"hook": {conntest.Opaque, "", func(c net.Conn) net.Conn {
			if o, ok := c.(conntest.OpaqueConn); ok {
				return o.Hidden
			}
			return nil
		}},
	} {
		for _, fresh := range []bool{true, false} {
			l := newLot(t, Config{Unwrap: c.unwrap})
			failed := make(chan error, 10)
			for i, first := range []string{"", "first"} {
				server, client := conntest.Pair(t, "tcp")
				if !fresh { // the header and what follows come in one segment, and are read before Park
					conntest.Send(t, client, c.header+first)
				}
				wrapped := c.wrap(server)
				if !fresh {
					wrapped.RemoteAddr()
				}
				check.OK(t, l.ParkWith(wrapped, Options{Fresh: fresh}, echoOnce(l, failed)))
				if fresh {
					await.Until(t, name+": parked", func() bool { return l.Counts().Parked == i+1 && l.Counts().Running == 0 })
					conntest.Send(t, client, c.header+first)
				}
				conntest.Expect(t, client, first)
				for range 10 {
					await.Until(t, name+": parked", func() bool { return l.Counts().Parked == i+1 && l.Counts().Running == 0 })
					conntest.Send(t, client, "text")
					conntest.Expect(t, client, "text")
				}
			}
			check.OK(t, l.Shutdown(t.Context()))
			if s := l.Counts(); s.Unparkable != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}

// A header that comes in two parts, and before the socket below a TLS connection has its handshake.
func TestParkTLSOverHeader(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	failed := make(chan error, 10)
	secure := tls.Server(conntest.NewHeaderConn(server), &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}})
	check.OK(t, l.ParkWith(secure, Options{Fresh: true}, echoOnce(l, failed)))
	conntest.Send(t, client, "hea")
	conntest.Send(t, client, "der\n")
	out := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	for range 10 {
		conntest.Send(t, out, "text")
		conntest.Expect(t, out, "text")
		await.Until(t, "parked", func() bool { return l.Counts().Parked == 1 && l.Counts().Running == 0 })
	}
}

// A TLS connection may be parked before its handshake even if the wrapper below it holds the handshake's beginning.
func TestParkTLSOverBytes(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	in := bufio.NewReader(server)
	go func() {
		out := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		out.Write([]byte("text"))
	}()
	if _, err := in.Peek(100); err != nil {
		t.Fatal(err)
	}
	f, outcomes := conntest.Reader()
	check.OK(t, l.Park(tls.Server(conntest.Buffer(server, in), &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}), f))
	if o := await.Value(t, outcomes); o.Text != "text" {
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
		conntest.Opaque,
		func(c net.Conn) net.Conn { return &conntest.UnfitConn{Conn: c} },
		func(c net.Conn) net.Conn { return Wrap(&conntest.UnfitConn{Conn: c}) },
		func(c net.Conn) net.Conn { return conntest.Embedding(&conntest.UnfitConn{Conn: c}) },
	} {
		for range 2 {
			server, client := conntest.Pair(t, "tcp")
			conn := wrap(server)
			err := l.Park(conn, none)
			check.Is(t, err, ErrUnparkable)
			check.Is(t, err, socknotify.ErrInvalid)
			n++
			conntest.Send(t, client, "text")
			conntest.Expect(t, conn, "text") // the deadline of reading ahead is gone
			if s := l.Counts(); s.Unparkable != n || s.Parks != 0 || s.Parked != 0 {
				t.Fatalf("%+v, want %d", s, n)
			}
		}
	}
	text := logged.String()
	for _, part := range []string{"type=conntest.OpaqueConn", "type=*conntest.UnfitConn", "type=conntest.EmbeddingConn", "own error",
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
		var logged conntest.Log
		l := newLot(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		server, _ := conntest.Pair(t, "tcp")
		c := panickingConn{server, new(atomic.Bool), new(atomic.Bool)}
		f, outcomes := conntest.Reader()
		var o conntest.Outcome
		for idle := 50 * time.Millisecond; ; idle *= 2 {
			if name == "Close" {
				idle = -1
			}
			check.OK(t, l.ParkWith(c, Options{IdleTimeout: idle}, f))
			c.deadline.Store(name != "Close")
			c.close.Store(name != "SetReadDeadline")
			if name == "Close" {
				check.OK(t, l.Close())
			}
			if o = await.Value(t, outcomes); !errors.Is(o.Err, os.ErrDeadlineExceeded) || idle > conntest.Timeout {
				break
			}
			c.deadline.Store(false) // the timeout was over before the methods began to panic
			c.close.Store(false)
		}
		if !errors.Is(o.Err, net.ErrClosed) {
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
		if !strings.Contains(text, "wrap_test.go") || !strings.Contains(text, "type=parking.panickingConn") {
			t.Errorf("%s: the log has no stack or type:\n%s", name, text)
		}
	}
}
