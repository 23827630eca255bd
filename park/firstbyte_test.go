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

	"github.com/socknotify/socknotify"
)

// firstByteListener returns a listener on loopback behind a FirstByteListener, and a function that dials it.
func firstByteListener(t testing.TB, c ListenerConfig, wrap func(net.Listener) net.Listener) (*FirstByteListener, func() net.Conn) {
	t.Helper()
	ln := newListening(t)
	address := ln.Addr().String()
	if wrap != nil {
		ln = wrap(ln)
	}
	f := c.Listener(ln)
	t.Cleanup(func() {
		f.Close()
		if f.lot != nil {
			must(t, f.lot.Shutdown(context.Background()))
		}
	})
	return f, func() net.Conn {
		conn, err := net.Dial("tcp", address)
		must(t, err)
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
		"TCP": nil, "embedded": func(c net.Conn) net.Conn { return &embeddingConn{c} }, "header": newHeaderConn,
	} {
		t.Run(name, func(t *testing.T) {
			f, dial := firstByteListener(t, ListenerConfig{}, func(l net.Listener) net.Listener {
				if wrap == nil {
					return l
				}
				return wrappingListener{l, wrap}
			})
			conns, failed := accepting(f)
			a, b, c := dial(), dial(), dial()
			waitFor(t, "they wait", func() bool { return f.Stats().Parked == 3 })
			wantEmpty(t, conns)
			if s := f.Stats(); s.Running != 0 {
				t.Errorf("%+v", s)
			}
			header := ""
			if name == "header" {
				header = "header\n"
			}
			for _, client := range []net.Conn{b, a} {
				send(t, client, header+"text")
				conn := receive(t, conns)
				expect(t, conn, "text")
				if _, tcp := conn.(*net.TCPConn); tcp != (wrap == nil) {
					t.Errorf("accepted a %T", conn)
				}
				send(t, conn, "answer")
				expect(t, client, "answer")
				conn.Close()
			}
			if name != "header" { // without a header there is nothing to accept
				c.Close()
				conn := receive(t, conns)
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("%v, want EOF", err)
				}
				conn.Close()
			}
			must(t, f.Close())
			wantErr(t, receive(t, failed), net.ErrClosed)
			wantErr(t, f.Close(), net.ErrClosed)
		})
	}
}

// Silent connections are closed by the timeout, by Close, and, the oldest first, at the bound.
func TestFirstByteSilent(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{IdleTimeout: 20 * time.Millisecond}, nil)
	conns, _ := accepting(f)
	ended := func(conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(timeout))
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("%v, want the end", err)
		}
	}
	ended(dial())
	waitFor(t, "counted", func() bool { s := f.Stats(); return s.Expired == 1 && s.Parked == 0 })
	wantEmpty(t, conns)

	f, dial = firstByteListener(t, ListenerConfig{MaxWaiting: 2}, nil)
	conns, _ = accepting(f)
	var clients []net.Conn
	for i := range 5 {
		clients = append(clients, dial())
		waitFor(t, "accepted", func() bool { return f.Stats().Parks == uint64(i+1) })
	}
	for _, conn := range clients[:3] {
		ended(conn)
	}
	for _, client := range clients[3:] {
		send(t, client, "x")
		conn := receive(t, conns)
		expect(t, conn, "x")
		conn.Close()
	}
	wantEmpty(t, conns)
	last := dial()
	waitFor(t, "it waits", func() bool { return f.Stats().Parked == 1 })
	must(t, f.Close())
	ended(last)
}

// Connections that have sent something are not closed at the bound. Others then stay in the system's backlog.
func TestFirstByteFull(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: 2}, nil)
	first := dial()
	send(t, first, "0")
	conn, err := f.Accept()
	must(t, err)
	expect(t, conn, "0")
	conn.Close()
	ready := func(n int) func() bool {
		return func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.ready) == n
		}
	}
	for i := range 2 {
		send(t, dial(), "x")
		waitFor(t, "it is ready", ready(i+1))
	}
	send(t, dial(), "y") // stays in the backlog, with its byte
	for _, want := range []string{"x", "x", "y"} {
		conn, err := f.Accept()
		must(t, err)
		expect(t, conn, want)
		conn.Close()
	}
	send(t, dial(), "x") // left behind
	waitFor(t, "it is ready", ready(1))
}

// What cannot be parked is accepted at once.
func TestFirstByteUnparkable(t *testing.T) {
	logged := new(testLog)
	f, dial := firstByteListener(t, ListenerConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))},
		func(l net.Listener) net.Listener {
			return wrappingListener{l, func(c net.Conn) net.Conn { return opaqueConn{c} }}
		})
	conns, _ := accepting(f)
	client := dial()
	conn := receive(t, conns)
	defer conn.Close()
	if _, ok := conn.(opaqueConn); !ok || f.Stats().Unparkable != 1 || !strings.Contains(logged.String(), "opaqueConn") {
		t.Errorf("%T, %+v, logged %s", conn, f.Stats(), logged)
	}
	send(t, client, "x")
	expect(t, conn, "x")
}

// Errors of the listener below are passed on, and it continues after temporary ones.
func TestFirstByteErrors(t *testing.T) {
	f, dial := firstByteListener(t, ListenerConfig{}, func(l net.Listener) net.Listener { return &flakyListener{l, 2} })
	conns, failed := accepting(f)
	send(t, dial(), "x")
	receive(t, conns).Close()
	for range 2 {
		if err := receive(t, failed); !errors.As(err, new(temporaryError)) {
			t.Error(err)
		}
	}
	f, _ = firstByteListener(t, ListenerConfig{}, nil)
	must(t, f.l.Close())
	for range 2 {
		_, err := f.Accept()
		wantErr(t, err, net.ErrClosed)
	}
	for _, f := range []*FirstByteListener{Listener(nil), ListenerConfig{Backend: "none such"}.Listener(newListening(t))} {
		_, err := f.Accept()
		wantErr(t, err, socknotify.ErrInvalid)
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
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
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
		waitFor(t, "they wait", func() bool { return f.Stats().Parked == 20 })
		wantEmpty(t, fresh)
		conn := silent[10]
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		send(t, conn, hello)
		expect(t, conn, "HTTP/1.1 200 OK\r\n")
		receive(t, fresh)
		if n := f.Stats().Parked; n != 19 {
			t.Errorf("%d wait, want 19", n)
		}
		must(t, srv.Close())
		wantErr(t, receive(t, served), http.ErrServerClosed)
	}
}

// A panic in a method of a connection costs that connection alone.
func TestFirstByteMethodPanics(t *testing.T) {
	for _, faults := range []string{"SetDeadline", "SetDeadline, Close"} {
		logged, first := new(testLog), true
		f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: 1, Logger: slog.New(slog.NewTextHandler(logged, nil))},
			func(l net.Listener) net.Listener {
				return wrappingListener{l, func(c net.Conn) net.Conn {
					if first {
						first = false
						return &faultyConn{c, faults}
					}
					return c
				}}
			})
		conns, _ := accepting(f)
		bad := dial()
		bad.SetReadDeadline(time.Now().Add(timeout))
		if _, err := bad.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("%v, want EOF", err)
		}
		waiting := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.n
		}
		waitFor(t, "removed", func() bool { return waiting() == 0 })
		client := dial()
		send(t, client, "x")
		conn := receive(t, conns)
		expect(t, conn, "x")
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
		must(t, err)
		first := Listener(wrappingListener{ln, newHeaderConn})
		config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
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
			served <- s.Serve(wrappingListener{first, func(conn net.Conn) net.Conn {
				if secure {
					return tls.Server(conn, config)
				}
				return embeddingConn{conn}
			}})
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		if secure { // the header and the first record come in one segment
			out := tls.Client(&headerFirst{Conn: conn}, &tls.Config{InsecureSkipVerify: true})
			conn.SetDeadline(time.Now().Add(timeout))
			send(t, out, "text")
			expect(t, out, "text")
		} else {
			send(t, conn, "header\ntext")
			expect(t, conn, "text")
		}
		conn.Close()
		must(t, s.Close())
		wantErr(t, receive(t, served), ErrServerClosed)
		must(t, s.Shutdown(t.Context()))
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
	const bound, more = 20, 30
	var gone atomic.Int64
	f, dial := firstByteListener(t, ListenerConfig{MaxWaiting: bound}, func(l net.Listener) net.Listener {
		return wrappingListener{l, func(c net.Conn) net.Conn { return &goneConn{c.(*net.TCPConn), &gone} }}
	})
	f.lot.sweep.stop() // it looks at closed connections too
	accepting(f)
	for i := range bound + more {
		dial()
		waitFor(t, "accepted", func() bool { return f.Stats().Parks == uint64(i+1) })
	}
	waitFor(t, "the oldest are closed", func() bool { s := f.Stats(); return s.Parked == bound && s.Running == 0 })
	must(t, f.Close())
	must(t, f.lot.Shutdown(t.Context()))
	if n := gone.Load(); n > 0 {
		t.Errorf("%d of %d connections were looked for after they were closed", n, bound+more)
	}
}
