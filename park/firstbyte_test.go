package park

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/testclock"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
)

// firstByteListener returns a listener on loopback behind a FirstByteListener, and a function that dials it.
func firstByteListener(t testing.TB, c ListenerConfig, wrap func(net.Listener) net.Listener) (*FirstByteListener, func() net.Conn) {
	t.Helper()
	ln := conntest.Listen(t)
	address := ln.Addr().String()
	if wrap != nil {
		ln = wrap(ln)
	}
	f := c.Listener(ln)
	t.Cleanup(func() {
		f.Close()
		if f.lot != nil {
			check.OK(t, f.lot.Shutdown(context.Background()))
		}
	})
	return f, func() net.Conn {
		conn, err := net.Dial("tcp", address)
		check.OK(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// accepting accepts all connections of f.
func accepting(f net.Listener) (conns chan net.Conn, failed chan error) {
	conns, failed = make(chan net.Conn, 100), make(chan error, 100)
	go func() {
		for {
			conn, err := f.Accept()
			if err != nil {
				failed <- err
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			conns <- conn
		}
	}()
	return conns, failed
}

// A connection is accepted when its first byte has arrived, and not before. It is the connection of the listener below.
func TestFirstByte(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"TCP": nil, "embedded": conntest.EmbeddingPointer, "header": conntest.NewHeaderConn,
	} {
		t.Run(name, func(t *testing.T) {
			f, dial := firstByteListener(t, ListenerConfig{}, func(l net.Listener) net.Listener {
				if wrap == nil {
					return l
				}
				return conntest.Wrapping(l, wrap)
			})
			conns, failed := accepting(f)
			a, b, c := dial(), dial(), dial()
			await.Until(t, "they wait", func() bool { return f.Stats().Parked == 3 })
			check.Empty(t, conns)
			if s := f.Stats(); s.Running != 0 {
				t.Errorf("%+v", s)
			}
			header := ""
			if name == "header" {
				header = "header\n"
			}
			for _, client := range []net.Conn{b, a} {
				conntest.Send(t, client, header+"text")
				conn := await.Value(t, conns)
				conntest.Expect(t, conn, "text")
				if _, tcp := conn.(*net.TCPConn); tcp != (wrap == nil) {
					t.Errorf("accepted a %T", conn)
				}
				conntest.Send(t, conn, "answer")
				conntest.Expect(t, client, "answer")
				conn.Close()
			}
			if name != "header" { // without a header there is nothing to accept
				c.Close()
				conn := await.Value(t, conns)
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("%v, want EOF", err)
				}
				conn.Close()
			}
			check.OK(t, f.Close())
			check.Is(t, await.Value(t, failed), net.ErrClosed)
			check.Is(t, f.Close(), net.ErrClosed)
		})
	}
}

// Silent connections are closed by the timeout, by Close, and, the oldest first, at the bound.
func TestFirstByteSilent(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{IdleTimeout: 20 * time.Millisecond}, nil)
	conns, _ := accepting(f)
	ended := func(conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("%v, want the end", err)
		}
	}
	ended(dial())
	await.Until(t, "counted", func() bool { s := f.Stats(); return s.Expired == 1 && s.Parked == 0 })
	check.Empty(t, conns)

	f, dial = firstByteListener(t, ListenerConfig{MaxWaiting: 2}, nil)
	conns, _ = accepting(f)
	var clients []net.Conn
	for i := range 5 {
		clients = append(clients, dial())
		await.Until(t, "accepted", func() bool { return f.Stats().Parks == uint64(i+1) })
	}
	for _, conn := range clients[:3] {
		ended(conn)
	}
	for _, client := range clients[3:] {
		conntest.Send(t, client, "x")
		conn := await.Value(t, conns)
		conntest.Expect(t, conn, "x")
		conn.Close()
	}
	check.Empty(t, conns)
	last := dial()
	await.Until(t, "it waits", func() bool { return f.Stats().Parked == 1 })
	check.OK(t, f.Close())
	ended(last)
}

// Connections that have sent something are not closed at the bound. Others then stay in the system's backlog.
func TestFirstByteFull(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: 2}, nil)
	first := dial()
	conntest.Send(t, first, "0")
	conn, err := f.Accept()
	check.OK(t, err)
	conntest.Expect(t, conn, "0")
	conn.Close()
	ready := func(n int) func() bool {
		return func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.ready) == n
		}
	}
	for i := range 2 {
		conntest.Send(t, dial(), "x")
		await.Until(t, "it is ready", ready(i+1))
	}
	conntest.Send(t, dial(), "y") // stays in the backlog, with its byte
	for _, want := range []string{"x", "x", "y"} {
		conn, err := f.Accept()
		check.OK(t, err)
		conntest.Expect(t, conn, want)
		conn.Close()
	}
	conntest.Send(t, dial(), "x") // left behind
	await.Until(t, "it is ready", ready(1))
}

// What cannot be parked is accepted at once.
func TestFirstByteUnparkable(t *testing.T) {
	logged := new(conntest.Log)
	f, dial := firstByteListener(t, ListenerConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))},
		func(l net.Listener) net.Listener {
			return conntest.Wrapping(l, conntest.Opaque)
		})
	conns, _ := accepting(f)
	client := dial()
	conn := await.Value(t, conns)
	defer conn.Close()
	if _, ok := conn.(conntest.OpaqueConn); !ok || f.Stats().Unparkable != 1 || !strings.Contains(logged.String(), "OpaqueConn") {
		t.Errorf("%T, %+v, logged %s", conn, f.Stats(), logged)
	}
	conntest.Send(t, client, "x")
	conntest.Expect(t, conn, "x")
}

// Errors of the listener below are passed on, and it continues after temporary ones.
func TestFirstByteErrors(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{}, func(l net.Listener) net.Listener { return &flakyListener{l, 2} })
	conns, failed := accepting(f)
	conntest.Send(t, dial(), "x")
	await.Value(t, conns).Close()
	for range 2 {
		if err := await.Value(t, failed); !errors.As(err, new(temporaryError)) {
			t.Error(err)
		}
	}
	f, _ = firstByteListener(t, ListenerConfig{}, nil)
	check.OK(t, f.l.Close())
	for range 2 {
		_, err := f.Accept()
		check.Is(t, err, net.ErrClosed)
	}
	for _, f := range []*FirstByteListener{Listener(nil), ListenerConfig{Backend: "none such"}.Listener(conntest.Listen(t))} {
		_, err := f.Accept()
		check.Is(t, err, socknotify.ErrInvalid)
		f.Close()
		f.Stats()
		f.Addr()
	}
}

// Stock net/http behind a FirstByteListener, with and without TLS: silent connections have no goroutine there.
func TestFirstByteHTTP(t *testing.T) {
	for _, secure := range []bool{false, true} {
		f, dial := firstByteListener(t, ListenerConfig{}, nil)
		srv := &http.Server{
			Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}},
		}
		served := make(chan error, 1)
		fresh := make(chan net.Conn, 100)
		srv.ConnState = func(conn net.Conn, state http.ConnState) {
			if state == http.StateNew {
				fresh <- conn
			}
		}
		go func() {
			if secure {
				served <- srv.ServeTLS(f, "", "")
			} else {
				served <- srv.Serve(f)
			}
		}()
		var silent []net.Conn
		for range 20 {
			silent = append(silent, dial())
		}
		await.Until(t, "they wait", func() bool { return f.Stats().Parked == 20 })
		check.Empty(t, fresh)
		conn := silent[10]
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		conntest.Send(t, conn, hello)
		conntest.Expect(t, conn, "HTTP/1.1 200 OK\r\n")
		await.Value(t, fresh)
		if n := f.Stats().Parked; n != 19 {
			t.Errorf("%d wait, want 19", n)
		}
		check.OK(t, srv.Close())
		check.Is(t, await.Value(t, served), http.ErrServerClosed)
	}
}

// A panic in a method of a connection costs that connection alone.
func TestFirstByteMethodPanics(t *testing.T) {
	for _, faults := range []string{"SetDeadline", "SetDeadline, Close"} {
		logged, first := new(conntest.Log), true
		f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: 1, Logger: slog.New(slog.NewTextHandler(logged, nil))},
			func(l net.Listener) net.Listener {
				return conntest.Wrapping(l, func(c net.Conn) net.Conn {
					if first {
						first = false
						return &faultyConn{c, faults}
					}
					return c
				})
			})
		conns, _ := accepting(f)
		bad := dial()
		bad.SetReadDeadline(time.Now().Add(conntest.Timeout))
		if _, err := bad.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("%v, want EOF", err)
		}
		waiting := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.n
		}
		await.Until(t, "removed", func() bool { return waiting() == 0 })
		client := dial()
		conntest.Send(t, client, "x")
		conn := await.Value(t, conns)
		conntest.Expect(t, conn, "x")
		conn.Close()
		if !strings.Contains(logged.String(), "SetDeadline panics") {
			t.Errorf("logged:\n%s", logged)
		}
	}
}

// A connection that a Listener has returned with bytes may be wrapped again before it is parked: the bytes are found below a
// wrapper that had a header.
func TestFirstByteWrappedAgain(t *testing.T) {
	for _, secure := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		check.OK(t, err)
		first := Listener(conntest.Wrapping(ln, conntest.NewHeaderConn))
		config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
		s := &Server{Handler: func(conn net.Conn) error {
			buf := make([]byte, 4)
			_, err := io.ReadFull(conn, buf)
			if err == nil {
				_, err = conn.Write(buf)
			}
			return err
		}}
		served := make(chan error, 1)
		go func() {
			served <- s.Serve(conntest.Wrapping(first, func(conn net.Conn) net.Conn {
				if secure {
					return tls.Server(conn, config)
				}
				return conntest.Embedding(conn)
			}))
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		check.OK(t, err)
		if secure { // the header and the first record come in one segment
			out := tls.Client(&headerFirst{Conn: conn}, &tls.Config{InsecureSkipVerify: true})
			conn.SetDeadline(time.Now().Add(conntest.Timeout))
			conntest.Send(t, out, "text")
			conntest.Expect(t, out, "text")
		} else {
			conntest.Send(t, conn, "header\ntext")
			conntest.Expect(t, conn, "text")
		}
		conn.Close()
		check.OK(t, s.Close())
		check.Is(t, await.Value(t, served), ErrServerClosed)
		check.OK(t, s.Shutdown(t.Context()))
	}
}

// A headerFirst sends a header in the segment of its first Write.
type headerFirst struct {
	net.Conn
	sent bool
}

func (h *headerFirst) Write(p []byte) (int, error) {
	if h.sent {
		return h.Conn.Write(p)
	}
	h.sent = true
	_, err := h.Conn.Write(append([]byte("header\n"), p...))
	return len(p), err
}

// A goneConn counts the attempts to find its descriptor after it was closed. For each of them the lot looks at its whole
// table.
type goneConn struct {
	*net.TCPConn
	gone *atomic.Int64
}

func (c goneConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.TCPConn.SyscallConn()
	return goneRaw{raw, c.gone}, err
}

type goneRaw struct {
	syscall.RawConn
	gone *atomic.Int64
}

func (r goneRaw) Control(f func(uintptr)) error {
	err := r.RawConn.Control(f)
	if err != nil {
		r.gone.Add(1)
	}
	return err
}

// Closing silent connections costs the same for each, however many there are: the lot does not look for one that is closed
// already.
func TestFirstByteCloseIsLinear(t *testing.T) {
	testclock.Install(t) // the lot's look for closed connections would count
	const bound, more = 20, 30
	var gone atomic.Int64
	f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: bound}, func(l net.Listener) net.Listener {
		return conntest.Wrapping(l, func(c net.Conn) net.Conn { return &goneConn{c.(*net.TCPConn), &gone} })
	})
	accepting(f)
	for i := range bound + more {
		dial()
		await.Until(t, "accepted", func() bool { return f.Stats().Parks == uint64(i+1) })
	}
	await.Until(t, "the oldest are closed", func() bool { s := f.Stats(); return s.Parked == bound && s.Running == 0 })
	check.OK(t, f.Close())
	check.OK(t, f.lot.Shutdown(t.Context()))
	if n := gone.Load(); n > 0 {
		t.Errorf("%d of %d connections were looked for after they were closed", n, bound+more)
	}
}
