package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A lineServer is a Server of a line protocol: each line is answered by itself. Some lines do
// something else.
type lineServer struct {
	*Server
	t        testing.TB
	address  string
	secure   bool
	served   chan error
	closed   chan error    // what Closed was called with
	redialed int           // connections that dialAsking gave up
	holding  chan struct{} // receives when a handler holds
	release  chan struct{} // ends handlers that hold
	logged   *conntest.Log
}

func readLine(conn net.Conn) (string, error) {
	var line []byte
	var one [1]byte
	for {
		if _, err := conn.Read(one[:]); err != nil {
			return string(line), err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
}

func newLineServer(t testing.TB, set func(*Server), serve func(*Server, net.Listener) error) *lineServer {
	t.Helper()
	s := &lineServer{Server: new(Server), t: t, served: make(chan error, 1), closed: make(chan error, 1000),
		holding: make(chan struct{}, 10), release: make(chan struct{}), logged: new(conntest.Log)}
	s.Handler = func(conn net.Conn) error {
		line, err := readLine(conn)
		if err != nil {
			return err
		}
		switch line {
		case "panic":
			panic("the handler panics")
		case "goexit":
			runtime.Goexit()
		case "error":
			return conntest.ErrOwn
		case "hold":
			s.holding <- struct{}{}
			<-s.release
		}
		_, err = io.WriteString(conn, line+"\n")
		return err
	}
	s.Closed = func(_ net.Conn, err error) { s.closed <- err }
	s.Logger = slog.New(slog.NewTextHandler(s.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if set != nil {
		set(s.Server)
	}
	if serve == nil {
		serve = (*Server).Serve
	}
	ln := freeport.Listen(t)
	s.address = ln.Addr().String()
	go func() { s.served <- serve(s.Server, ln) }()
	release := sync.OnceFunc(func() { close(s.release) })
	t.Cleanup(func() {
		release()
		s.Close()
		check.OK(t, s.Shutdown(context.Background()))
		check.Is(t, await.Value(t, s.served), ErrServerClosed)
		if n := s.Stats(); n.Conns != 0 || n.Parked != 0 || n.Running != 0 {
			t.Errorf("left behind: %+v", n)
		}
		if len(s.addresses) != 0 {
			t.Errorf("addresses left behind: %v", s.addresses)
		}
	})
	return s
}

func (s *lineServer) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	check.OK(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(conntest.Timeout))
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn
}

func (s *lineServer) ask(conn net.Conn, line string) {
	s.t.Helper()
	conntest.Send(s.t, conn, line+"\n")
	conntest.Expect(s.t, conn, line+"\n")
}

// dialAsking returns a connection on which a line was answered, by TLS if secure, and the TCP
// connection below it. It dials again if IdleTimeout, which begins when a connection is accepted,
// or ReadTimeout was over before the line was read.
func (s *lineServer) dialAsking(line string, secure bool) (conn, raw net.Conn) {
	s.t.Helper()
	end := time.Now().Add(conntest.Timeout)
	for s.redialed = -1; time.Now().Before(end); raw.Close() {
		s.redialed++
		raw = s.dial()
		if conn = raw; secure {
			conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		}
		conn.SetDeadline(end)
		answer := make([]byte, len(line)+1)
		_, err := io.WriteString(conn, line+"\n")
		if err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if err == nil {
			if string(answer) != line+"\n" {
				s.t.Fatalf("got %q, want %q", answer, line)
			}
			conn.SetDeadline(time.Time{})
			return conn, raw
		}
	}
	s.t.Fatal("no connection was served before the timeout")
	return nil, nil
}

// ended waits until the server has closed conn.
func (s *lineServer) ended(conn net.Conn) {
	s.t.Helper()
	conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Fatalf("%d, %v; want the end", n, err)
	}
}

// A Server serves connections of every kind, and parks them before the first byte and between
// messages.
func TestServer(t *testing.T) {
	cert := conntest.Certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	wrapped := func(wrap func(net.Conn) net.Conn, secure bool) func(*Server, net.Listener) error {
		return func(s *Server, l net.Listener) error {
			l = conntest.Wrapping(l, wrap)
			if secure {
				s.TLSConfig = config
				return s.ServeTLS(l, "", "")
			}
			return s.Serve(l)
		}
	}
	opaque := conntest.Opaque
	for name, c := range map[string]struct {
		serve      func(*Server, net.Listener) error
		secure     bool
		header     string
		unparkable bool
	}{
		"TCP":          {nil, false, "", false},
		"TLS":          {wrapped(func(c net.Conn) net.Conn { return c }, true), true, "", false},
		"TLS listener": {func(s *Server, l net.Listener) error { return s.Serve(tls.NewListener(l, config)) }, true, "", false},
		"TLS listener, embedded": {func(s *Server, l net.Listener) error {
			return s.Serve(conntest.Wrapping(tls.NewListener(l, config), conntest.Embedding))
		}, true, "", false},
		"embedded":     {wrapped(conntest.Embedding, false), false, "", false},
		"embedded TLS": {wrapped(conntest.Embedding, true), true, "", false},
		"header":       {wrapped(conntest.NewHeaderConn, false), false, "header\n", false},
		"header, TLS":  {wrapped(conntest.NewHeaderConn, true), true, "header\n", false},
		"opaque":       {wrapped(opaque, false), false, "", true},
		"opaque, TLS":  {wrapped(opaque, true), true, "", true},
		"unfit":        {wrapped(conntest.Unfit, false), false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLineServer(t, nil, c.serve)
			const conns = 5
			parked := conns
			if c.unparkable {
				parked = 0
			}
			var clients []net.Conn
			for range conns {
				conn, err := net.Dial("tcp", s.address)
				check.OK(t, err)
				defer conn.Close()
				clients = append(clients, conn)
			}
			await.Until(t, "accepted", func() bool { n := s.Stats(); return n.Conns == conns && n.Parked == parked })
			if n := s.Stats(); n.Running != 0 || n.Workers > 1 {
				t.Errorf("before the first byte: %+v", n)
			}
			for i, conn := range clients {
				if c.header != "" {
					conntest.Send(t, conn, c.header)
				}
				if c.secure {
					clients[i] = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
			}
			for range 5 {
				for _, conn := range clients {
					s.ask(conn, "text")
				}
				await.Until(t, "parked", func() bool { n := s.Stats(); return n.Parked == parked && n.Running == 0 })
			}
			if n := s.Stats(); (n.Unparkable == conns) != c.unparkable {
				t.Errorf("%+v", n)
			}
			clients[0].Close()
			if err := await.Value(t, s.closed); !errors.Is(err, io.EOF) {
				t.Errorf("closed with %v, want EOF", err)
			}
			check.OK(t, s.Shutdown(t.Context()))
			for _, conn := range clients[1:] {
				if err := await.Value(t, s.closed); !errors.Is(err, ErrServerClosed) || !errors.Is(err, net.ErrClosed) {
					t.Errorf("closed with %v", err)
				}
				s.ended(conn)
			}
		})
	}
}

// Half a message is ended by ReadTimeout, a silent connection by IdleTimeout, and a slow handshake
// by HandshakeTimeout.
func TestServerTimeouts(t *testing.T) {
	const short = 50 * time.Millisecond
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	serveTLS := func(s *Server, l net.Listener) error {
		s.TLSConfig = config
		return s.ServeTLS(l, "", "")
	}
	for name, c := range map[string]struct {
		set    func(*Server)
		serve  func(*Server, net.Listener) error
		ask    bool // one message first
		send   string
		opened bool
		cause  error
	}{
		"silent":             {func(s *Server) { s.IdleTimeout = short }, nil, false, "", false, ErrIdle},
		"idle":               {func(s *Server) { s.IdleTimeout = short }, nil, true, "", true, ErrIdle},
		"half a message":     {func(s *Server) { s.ReadTimeout = short }, nil, false, "tex", true, ErrMessageTimeout},
		"half, later":        {func(s *Server) { s.ReadTimeout = short }, nil, true, "tex", true, ErrMessageTimeout},
		"silent, TLS":        {func(s *Server) { s.IdleTimeout = short }, serveTLS, false, "", false, ErrIdle},
		"half a handshake":   {func(s *Server) { s.HandshakeTimeout = short }, serveTLS, false, "\x16\x03", false, ErrHandshake},
		"idle, TLS":          {func(s *Server) { s.IdleTimeout = short }, serveTLS, true, "", true, ErrIdle},
		"half a record":      {func(s *Server) { s.IdleTimeout = short }, serveTLS, true, "\x17\x03", true, ErrIdle},
		"silent, unparkable": {func(s *Server) { s.IdleTimeout = short }, serveOpaque, false, "", false, ErrIdle},
		"half, unparkable":   {func(s *Server) { s.ReadTimeout = short }, serveOpaque, true, "tex", true, ErrMessageTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLineServer(t, c.set, c.serve)
			var raw net.Conn
			if c.ask {
				_, raw = s.dialAsking("text", strings.Contains(name, "TLS") || strings.Contains(name, "record"))
			} else {
				raw = s.dial()
			}
			raw.Write([]byte(c.send)) // it fails if the timeout is over already
			raw.SetReadDeadline(time.Now().Add(conntest.Timeout))
			if _, err := io.Copy(io.Discard, raw); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection was not closed")
			}
			if c.opened {
				err := await.Value(t, s.closed)
				check.Is(t, err, c.cause)
				check.Is(t, err, os.ErrDeadlineExceeded)
			}
			await.Until(t, "ended", func() bool { return s.Stats().Conns == 0 })
			for range min(s.redialed, len(s.closed)) { // dialAsking was slower than the timeout
				check.Is(t, <-s.closed, c.cause)
			}
			check.Empty(t, s.closed)
			n := s.Stats().TimedOut
			for cause, n := range map[error]uint64{ErrIdle: n.Idle, ErrMessageTimeout: n.Message,
				ErrHandshake: n.Handshake, ErrSlow: n.Slow} {
				if (n > 0) != (cause == c.cause) {
					t.Errorf("%v was counted %d times", cause, n)
				}
			}
		})
	}
}

// A peer that does not read is ended by WriteTimeout.
func TestServerSlowPeer(t *testing.T) {
	s := newLineServer(t, func(s *Server) {
		s.WriteTimeout = 50 * time.Millisecond
		s.Handler = func(conn net.Conn) error {
			for {
				if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
		}
	}, nil)
	conn := s.dial()
	conntest.Send(t, conn, "x")
	err := await.Value(t, s.closed)
	check.Is(t, err, ErrSlow)
	check.Is(t, err, os.ErrDeadlineExceeded)
	if n := s.Stats().TimedOut; n.Slow != 1 || n.Message != 0 {
		t.Errorf("%+v", n)
	}
}

func serveOpaque(s *Server, l net.Listener) error {
	return s.Serve(conntest.Wrapping(l, conntest.Opaque))
}

// With MaxRunning, peers that send half a message delay others by ReadTimeout and no longer, and
// Stats shows who waits.
func TestServerHalfMessages(t *testing.T) {
	t.Parallel() // it waits
	s := newLineServer(t, func(s *Server) {
		s.MaxRunning = 8
		s.ReadTimeout = 300 * time.Millisecond
	}, nil)
	slow := 0
	await.Until(t, "the others wait", func() bool { // more come, because the first end after ReadTimeout
		if slow < 20 || s.Stats().Waiting == 0 {
			conntest.Send(t, s.dial(), "half")
			slow++
		}
		return slow >= 20 && s.Stats().Waiting > 0
	})
	s.ask(s.dial(), "good")
	for range slow {
		check.Is(t, await.Value(t, s.closed), os.ErrDeadlineExceeded)
	}
	if n := s.Stats(); n.Waiting != 0 {
		t.Errorf("%+v", n)
	}
}

func TestServerLimits(t *testing.T) {
	s := newLineServer(t, func(s *Server) { s.MaxConns = 2 }, nil)
	a, b := s.dial(), s.dial()
	s.ask(a, "a")
	s.ask(b, "b")
	s.ended(s.dial())
	a.Close()
	await.Until(t, "one has ended", func() bool { return s.Stats().Conns == 1 })
	s.ask(s.dial(), "c")
	if n := s.Stats(); n.Refused != 1 {
		t.Errorf("%+v", n)
	}

	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"TCP": func(c net.Conn) net.Conn { return c }, "header": conntest.NewHeaderConn} {
		s = newLineServer(t, func(s *Server) { s.MaxConnsPerAddr = 2 }, func(s *Server, l net.Listener) error {
			return s.Serve(conntest.Wrapping(l, wrap))
		})
		header := func(conn net.Conn) net.Conn {
			if name == "header" {
				conntest.Send(t, conn, "header\n")
			}
			return conn
		}
		a, b = header(s.dial()), header(s.dial())
		s.ask(a, "a")
		s.ask(b, "b")
		c := s.dial()
		if name == "header" {
			conntest.Send(t, c, "header\nline\n")
		}
		s.ended(c)
		a.Close()
		await.Until(t, name+": one has ended", func() bool { return s.Stats().Conns == 1 })
		s.ask(header(s.dial()), "d")
		if n := s.Stats(); n.Refused != 1 {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// A handler that fails loses its own connection.
func TestServerFailures(t *testing.T) {
	for _, serve := range []func(*Server, net.Listener) error{nil, serveOpaque} {
		s := newLineServer(t, nil, serve)
		good := s.dial()
		for line, want := range map[string]string{"panic": "the handler panics", "goexit": "Goexit", "error": "own error"} {
			s.ask(good, "good")
			bad := s.dial()
			conntest.Send(t, bad, line+"\n")
			s.ended(bad)
			if err := await.Value(t, s.closed); !strings.Contains(err.Error(), want) {
				t.Errorf("%s: closed with %v", line, err)
			}
			s.ask(good, "good")
		}
		if text := s.logged.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "server_test.go") ||
			!strings.Contains(text, "the handler panics") {
			t.Errorf("logged:\n%s", text)
		}
	}
	s := newLineServer(t, func(s *Server) {
		s.Closed = func(net.Conn, error) { panic("Closed panics") }
	}, nil)
	conn := s.dial()
	s.ask(conn, "x")
	conn.Close()
	await.Until(t, "ended", func() bool { return s.Stats().Conns == 0 })
	s.ask(s.dial(), "x")
}

// Open gives each connection a state.
func TestServerOpen(t *testing.T) {
	s := newLineServer(t, func(s *Server) {
		s.Handler = nil
		s.Open = func(conn net.Conn) (func(net.Conn) error, error) {
			n := 0
			return func(conn net.Conn) error {
				line, err := readLine(conn)
				if err != nil {
					return err
				}
				if line == "refuse" {
					return conntest.ErrOwn
				}
				n++
				_, err = fmt.Fprintf(conn, "%s %d\n", line, n)
				return err
			}, nil
		}
	}, nil)
	a, b := s.dial(), s.dial()
	for i := 1; i < 4; i++ {
		conntest.Send(t, a, "a\n")
		conntest.Expect(t, a, fmt.Sprintf("a %d\n", i))
		conntest.Send(t, b, "b\n")
		conntest.Expect(t, b, fmt.Sprintf("b %d\n", i))
	}
	conntest.Send(t, a, "refuse\n")
	s.ended(a)
	check.Is(t, await.Value(t, s.closed), conntest.ErrOwn)

	s = newLineServer(t, func(s *Server) {
		s.Open = func(net.Conn) (func(net.Conn) error, error) { return nil, conntest.ErrOwn }
	}, nil)
	c := s.dial()
	conntest.Send(t, c, "x")
	s.ended(c)
	check.Is(t, await.Value(t, s.closed), conntest.ErrOwn)
}

// Several messages in one segment are each answered, whatever the connection.
func TestServerPipelined(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	for name, serve := range map[string]func(*Server, net.Listener) error{
		"TCP":    nil,
		"opaque": serveOpaque,
		"TLS": func(s *Server, l net.Listener) error {
			s.TLSConfig = config
			return s.ServeTLS(l, "", "")
		},
	} {
		s := newLineServer(t, nil, serve)
		s.secure = name == "TLS"
		conn := s.dial()
		in := bufio.NewReader(conn)
		for range 5 {
			conntest.Send(t, conn, strings.Repeat("line\n", 100))
			for range 100 {
				if line, err := in.ReadString('\n'); line != "line\n" || err != nil {
					t.Fatalf("%s: %q, %v", name, line, err)
				}
			}
			if name != "opaque" {
				await.Until(t, "parked", func() bool { n := s.Stats(); return n.Parked == 1 && n.Running == 0 })
			}
		}
	}
}

// Shutdown waits for handlers, and closes their connections after the answer. When its context is
// done first, it closes them at once.
func TestServerShutdown(t *testing.T) {
	for i, serve := range []func(*Server, net.Listener) error{nil, serveOpaque, nil, serveOpaque} {
		s := newLineServer(t, nil, serve)
		held, idle := s.dial(), s.dial()
		s.ask(idle, "x")
		s.ask(held, "x")
		conntest.Send(t, held, "hold\n")
		await.Value(t, s.holding)
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { result <- s.Shutdown(ctx) }()
		s.ended(idle)
		check.Is(t, await.Value(t, s.closed), ErrServerClosed)
		if _, err := net.Dial("tcp", s.address); err == nil {
			t.Error("the listener is open")
		}
		check.Empty(t, result)
		if i < 2 {
			s.release <- struct{}{}
			conntest.Expect(t, held, "hold\n")
			s.ended(held)
			check.OK(t, await.Value(t, result))
		} else {
			cancel(conntest.ErrOwn)
			check.Is(t, await.Value(t, result), conntest.ErrOwn)
			s.ended(held)
			s.release <- struct{}{}
		}
		cancel(nil)
		check.OK(t, s.Shutdown(t.Context()))
		check.Is(t, s.Serve(conntest.Listen(t)), ErrServerClosed)
	}
}

// Close closes every connection, also those whose handlers run.
func TestServerClose(t *testing.T) {
	entered := make(chan struct{}, 10)
	s := newLineServer(t, func(s *Server) {
		handler := s.Handler
		s.Handler = func(conn net.Conn) error {
			entered <- struct{}{}
			return handler(conn)
		}
	}, nil)
	half, idle, silent := s.dial(), s.dial(), s.dial()
	s.ask(idle, "x")
	await.Value(t, entered)
	conntest.Send(t, half, "half")
	await.Value(t, entered)
	await.Until(t, "the others are parked", func() bool { n := s.Stats(); return n.Conns == 3 && n.Parked == 2 })
	check.OK(t, s.Close())
	for _, conn := range []net.Conn{half, idle, silent} {
		s.ended(conn)
	}
	for range 2 {
		check.Is(t, await.Value(t, s.closed), net.ErrClosed)
	}
	check.OK(t, s.Shutdown(t.Context()))
}

func TestServerErrors(t *testing.T) {
	handler := func(net.Conn) error { return nil }
	for name, s := range map[string]*Server{
		"Handler": {}, "Backend": {Handler: handler, Backend: "none such"},
	} {
		ln := conntest.Listen(t)
		if err := s.Serve(ln); !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is open", name)
		}
		check.OK(t, s.Shutdown(t.Context()))
	}
	s := &Server{Handler: handler}
	check.Is(t, s.Serve(nil), socknotify.ErrInvalid)
	var noContext context.Context
	check.Is(t, s.Shutdown(noContext), socknotify.ErrInvalid)
	if err := s.ServeTLS(conntest.Listen(t), "none", "none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	f := newLineServer(t, nil, func(s *Server, l net.Listener) error { return s.Serve(&flakyListener{l, 3}) })
	f.ask(f.dial(), "x")
	if n := strings.Count(f.logged.String(), "cannot accept, trying again"); n != 3 {
		t.Errorf("%d accept errors in the log, want 3", n)
	}
}

// A wrapper's Close is called once for each connection, however it ends.
func TestServerClosesOnce(t *testing.T) {
	var opened, closed atomic.Int64
	clock := testclock.Install(t)
	s := newLineServer(t, func(s *Server) { s.IdleTimeout = time.Hour }, func(s *Server, l net.Listener) error {
		return s.Serve(conntest.Wrapping(l, func(c net.Conn) net.Conn {
			opened.Add(1)
			return &closeCounter{c, &closed}
		}))
	})
	a, b, c, d := s.dial(), s.dial(), s.dial(), s.dial()
	s.ask(a, "x")
	a.Close()
	conntest.Send(t, b, "panic\n")
	s.ended(b)
	s.ask(c, "x")
	await.Until(t, "accepted", func() bool { return opened.Load() == 4 && s.Stats().Parked == 2 })
	_, end := shutDown(t, clock, func() error { return s.Shutdown(t.Context()) })
	end()
	s.ended(c)
	s.ended(d)
	if n := closed.Load(); n != 4 {
		t.Errorf("Close was called %d times for 4 connections", n)
	}
}

type closeCounter struct {
	net.Conn
	n *atomic.Int64
}

func (c *closeCounter) Close() error {
	c.n.Add(1)
	return c.Conn.Close()
}

// A TLS connection over a wrapper has its handshake outside MaxRunning, because it begins before
// the first byte: silent peers delay no other. Shutdown closes them.
func TestServerHandshakeApart(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	clock := testclock.Install(t)
	s := newLineServer(t, func(s *Server) {
		s.MaxRunning = 1
		s.HandshakeTimeout = -1
	}, func(s *Server, l net.Listener) error {
		return s.Serve(tls.NewListener(conntest.Wrapping(l, conntest.Embedding), config))
	})
	var silent []net.Conn
	for range 3 {
		silent = append(silent, s.dial())
	}
	await.Until(t, "accepted", func() bool { return s.Stats().Conns == 3 })
	s.secure = true
	conn := s.dial()
	for range 3 {
		s.ask(conn, "text")
		await.Until(t, "parked", func() bool { n := s.Stats(); return n.Parked == 1 && n.Running == 0 })
	}
	_, end := shutDown(t, clock, func() error { return s.Shutdown(t.Context()) })
	end()
	for _, conn := range append(silent, conn) {
		s.ended(conn)
	}
	check.Is(t, await.Value(t, s.closed), ErrServerClosed)
	check.Empty(t, s.closed)
}

// A Unix socket holds no bytes, so nothing is read ahead before its handler is called.
func TestServerUnix(t *testing.T) {
	path, listening, ahead := t.TempDir()+"/socket", make(chan struct{}), make(chan bool, 10)
	s := newLineServer(t, func(s *Server) {
		handler := s.Handler
		s.Handler = func(conn net.Conn) error {
			ahead <- parking.HasBytesAhead(conn.(*parking.Conn))
			return handler(conn)
		}
	}, func(s *Server, l net.Listener) error {
		l.Close()
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		close(listening)
		return s.Serve(l)
	})
	await.Value(t, listening)
	conn, err := net.Dial("unix", path)
	check.OK(t, err)
	defer conn.Close()
	s.ask(conn, "text")
	if await.Value(t, ahead) {
		t.Error("bytes were read ahead")
	}
}

// A turncoatConn fails its second Read, the first after it was parked, with an error of its own.
type turncoatConn struct {
	net.Conn
	reads int
}

func (c *turncoatConn) Read(p []byte) (int, error) {
	if c.reads++; c.reads == 2 {
		return 0, conntest.ErrOwn
	}
	return c.Conn.Read(p)
}

// A connection that turns out not to be parkable after it was parked is counted and logged too.
func TestServerUnparkableLater(t *testing.T) {
	s := newLineServer(t, nil, func(s *Server, l net.Listener) error {
		return s.Serve(conntest.Wrapping(l, func(c net.Conn) net.Conn { return &turncoatConn{Conn: c} }))
	})
	conn := s.dial()
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	s.ask(conn, "text")
	if n := s.Stats().Unparkable; n != 1 {
		t.Errorf("Unparkable is %d, want 1", n)
	}
	if text := s.logged.String(); !strings.Contains(text, "type=*park.turncoatConn") || !strings.Contains(text, "own error") {
		t.Errorf("logged:\n%s", text)
	}
}

// An ownTimeoutConn has no socket to be found, and a timeout error of its own.
type ownTimeoutConn struct{ conntest.OpaqueConn }

type ownTimeout struct{}

func (ownTimeout) Error() string   { return "own timeout" }
func (ownTimeout) Timeout() bool   { return true }
func (ownTimeout) Temporary() bool { return true }

func (c ownTimeoutConn) Read(p []byte) (int, error) {
	n, err := c.OpaqueConn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ownTimeout{}
	}
	return n, err
}

// After IdleTimeout, Closed is called with os.ErrDeadlineExceeded, whatever the wrapper's error.
func TestServerOwnTimeout(t *testing.T) {
	s := newLineServer(t, func(s *Server) { s.IdleTimeout = 50 * time.Millisecond }, func(s *Server, l net.Listener) error {
		return s.Serve(conntest.Wrapping(l, func(c net.Conn) net.Conn { return ownTimeoutConn{conntest.OpaqueConn{Hidden: c}} }))
	})
	conn, _ := s.dialAsking("text", false)
	s.ended(conn)
	err := await.Value(t, s.closed)
	check.Is(t, err, os.ErrDeadlineExceeded)
	check.Is(t, err, ownTimeout{})
}

// A faultyConn panics in the methods that faults names.
type faultyConn struct {
	net.Conn
	faults string
}

func (c *faultyConn) fault(method string) {
	if strings.Contains(c.faults, method) {
		panic(method + " panics")
	}
}

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.fault("Read")
	}
	return n, err
}

func (c *faultyConn) RemoteAddr() net.Addr {
	c.fault("RemoteAddr")
	return c.Conn.RemoteAddr()
}

func (c *faultyConn) SetReadDeadline(t time.Time) error {
	c.fault("SetDeadline")
	return c.Conn.SetReadDeadline(t)
}

func (c *faultyConn) Close() error {
	c.Conn.Close()
	c.fault("Close")
	return nil
}

// A panic in a method of a connection is logged and costs that connection. Neither it nor its
// address stays counted.
func TestServerMethodPanics(t *testing.T) {
	for _, faults := range []string{"RemoteAddr", "SetDeadline", "Close", "Read", "SetDeadline, Close", "RemoteAddr, Close",
		"Read, RemoteAddr", "Read, RemoteAddr, Close"} {
		for _, opaque := range []bool{false, true} {
			var made atomic.Int64
			s := newLineServer(t, func(s *Server) { s.MaxConnsPerAddr = 1 }, func(s *Server, l net.Listener) error {
				return s.Serve(conntest.Wrapping(l, func(c net.Conn) net.Conn {
					if made.Add(1) == 1 {
						c = &faultyConn{c, faults}
					}
					if opaque {
						c = conntest.Opaque(c)
					}
					return c
				}))
			})
			conn := s.dial()
			conn.Write([]byte("error\n"))
			s.ended(conn)
			await.Until(t, faults+": ended", func() bool {
				n := s.Stats()
				s.mu.Lock()
				defer s.mu.Unlock()
				return n.Conns == 0 && len(s.addresses) == 0
			})
			s.ask(s.dial(), "text")
			if text := s.logged.String(); !strings.Contains(text, " panics") {
				t.Errorf("%s: logged\n%s", faults, text)
			}
		}
	}
}
