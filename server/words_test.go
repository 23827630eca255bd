package server_test

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// A server without a Logger logs the panic of a handler to slog.Default.
func TestNoLogger(t *testing.T) {
	var log logged
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(log.logger())
	h := &handler{t: t, data: func(conn, []byte) error { panic("boom") }}
	s := &srv{Handler: h, Name: "front"}
	c := dial(t, start(t, s))
	c.Write([]byte("x"))
	var p *server.PanicError
	if err := h.cause(1); !errors.As(err, &p) || p.Value != "boom" {
		t.Errorf("cause %v", err)
	}
	for _, want := range []string{"level=ERROR", "name=front", "panic=boom", "stack=", c.LocalAddr().String()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, &log)
		}
	}
}

// A negative number means none.
func TestNegativeMeansNone(t *testing.T) {
	s := &srv{Handler: &handler{t: t}, MaxRunning: -1, MaxMessage: -1, MaxQueued: -1, MaxQueuedTotal: -1,
		MaxConns: -1, MaxConnsPerAddr: -1, MaxHandshakes: -1, IdleTimeout: -1, ReadTimeout: -1,
		WriteTimeout: -1, HandshakeTimeout: -1, StuckAfter: -1, AcceptRate: server.Rate{PerSecond: -1},
		ReadRate: server.Rate{PerSecond: -1}}
	addr, client := startTLS(t, s)
	for range 3 {
		c := dialTLS(t, addr, client)
		echoes(t, c, "hello")
	}
	if st := s.Stats(); st.Conns != 3 || st.TimedOut.Handshake != 0 {
		t.Errorf("%+v", st)
	}
}

// SlowClose closes the connection of a peer that does not read, where SlowDrop refuses the write.
func TestSlowPolicy(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 10_000, SlowPolicy: server.SlowClose}
		connect(s)
		c := h.conn(1)
		err := error(nil)
		for err == nil {
			_, err = c.Write(make([]byte, 5000))
		}
		if cause := h.cause(1); err != server.ErrSlow || cause != server.ErrSlow {
			t.Errorf("Write: %v, Close: %v", err, cause)
		}
		if n := s.Stats().TimedOut.Slow; n != 1 {
			t.Errorf("%d slow connections", n)
		}
	})
}

// MaxRunning bounds the workers that take the places of those whose handlers do not return.
func TestMaxRunning(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		clock := testclock.Install(t)
		entered, release := make(chan struct{}), make(chan struct{})
		enter := sync.OnceFunc(func() { close(entered) })
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			enter()
			<-release
			return echo(c, buf)
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 1, MaxRunning: 2}
		addr := start(t, s)
		var conns []net.Conn
		for range 3 {
			c := dial(t, addr)
			send(t, c, "x")
			conns = append(conns, c)
		}
		<-entered // a worker that is late in a call that returns, such as Open, would end
		for s.Stats().Workers < 2 {
			clock.Advance(50 * time.Millisecond)
		}
		for range 10 { // the watchdog looks at both, and starts no third
			clock.Advance(50 * time.Millisecond)
		}
		if n := s.Stats().Workers; n != 2 {
			t.Errorf("%d workers", n)
		}
		close(release)
		for _, c := range conns {
			expect(t, c, "x")
		}
	})
}

// The end of a server is a closed connection for code that knows package net alone.
func TestErrServerClosed(t *testing.T) {
	s := &srv{Handler: &handler{t: t}}
	s.Close()
	if err := s.ListenAndServe("tcp", "127.0.0.1:0"); err != server.ErrServerClosed || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}
