package server_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// A limiter is a listener that limits the connections that are open at a time.
type limiter struct {
	net.Listener
	slots    chan struct{}
	accepted atomic.Int64
	panics   bool
}

type limited struct {
	net.Conn
	release func()
}

func (l *limiter) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	l.accepted.Add(1)
	return &limited{c, sync.OnceFunc(func() {
		<-l.slots
		if l.panics {
			panic("Close")
		}
	})}, nil
}

func (c *limited) Close() error {
	defer c.release()
	return c.Conn.Close()
}

func newLimiter(t *testing.T, n int) *limiter {
	l := listen(t)
	return &limiter{Listener: l, slots: make(chan struct{}, n)}
}

// A listener that limits connections does so: the next one is accepted when one has ended.
func TestWrappedListener(t *testing.T) {
	for _, panics := range []bool{false, true} {
		backendtest.Each(t, func(t *testing.T, backend string) {
			l := newLimiter(t, 2)
			l.panics = panics
			h := &handler{t: t}
			s := &srv{Handler: h, Backend: backend, MaxConns: 3}
			serve(t, s, l)
			var open []net.Conn
			for range 2 {
				c := dial(t, l.Addr().String())
				echoes(t, c, "echo")
				open = append(open, c)
			}
			third := dial(t, l.Addr().String())
			send(t, third, "echo") // into the backlog
			echoes(t, open[1], "more")
			if n := l.accepted.Load(); n != 2 {
				t.Errorf("%d connections were accepted", n)
			}
			open[0].Close()
			expect(t, third, "echo")
			wait(t, func() bool { st := s.Stats(); return st.Conns == 2 && (st.Panics == 1) == panics })
		})
	}
}

// A connection beyond a limit of the server is given back to the listener that has accepted it.
func TestWrappedRefused(t *testing.T) {
	l := newLimiter(t, 1)
	s := &srv{Handler: &handler{t: t}, AcceptRate: server.Rate{PerSecond: 1}}
	serve(t, s, l)
	for s.Stats().Refused < 2 {
		c := dial(t, l.Addr().String())
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
}

// Shutdown serves the first request of a connection that a wrapper has accepted.
func TestWrappedShutdown(t *testing.T) {
	l := newLimiter(t, 100)
	s := &srv{Handler: &handler{t: t}}
	serve(t, s, l)
	conns := make([]net.Conn, 20)
	for i := range conns {
		conns[i] = dial(t, l.Addr().String())
	}
	wait(t, func() bool { return s.Stats().Conns == len(conns) })
	done := shuttingDown(t, s)
	for _, c := range conns {
		echoes(t, c, "first")
		expectEnd(t, c, io.EOF)
	}
	done()
	if n := len(l.slots); n > 1 { // Serve may still be in Accept, which has one
		t.Errorf("%d connections were not closed", n-1)
	}
	wait(t, func() bool { return len(l.slots) == 0 })
}

// Serve returns an error that names the type of a listener that it cannot serve.
func TestListenerThatCannotBeServed(t *testing.T) {
	opaque := struct{ opaqueListener }{}
	if err := (&srv{Handler: &handler{t: t}}).Serve(&opaque.opaqueListener); !errors.Is(err, socknotify.ErrInvalid) ||
		!strings.Contains(err.Error(), "server_test.opaqueListener") {
		t.Errorf("Serve = %v", err)
	}
	if err := (&srv{Handler: &handler{t: t}}).Serve((*net.TCPListener)(nil)); !errors.Is(err, socknotify.ErrInvalid) {
		t.Errorf("Serve of a nil *net.TCPListener = %v", err)
	}
	config, _ := certified(t)
	tcp := newLimiter(t, 1).Listener
	s := &srv{Handler: &handler{t: t}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(tls.NewListener(tcp, config)) }()
	c := dial(t, tcp.Addr().String())
	if err := <-done; !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), "*tls.Conn") ||
		!strings.Contains(err.Error(), "*tls.listener") {
		t.Errorf("Serve of a TLS listener = %v", err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection that cannot be served: %d bytes, %v", n, err)
	}
	s.Close()
	shutdown(t, s)
}

type opaqueListener struct{}

func (*opaqueListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (*opaqueListener) Close() error              { return nil }
func (*opaqueListener) Addr() net.Addr            { return &net.TCPAddr{} }

// A wrapper whose Accept fails because there are no descriptors is asked again, and one that is closed by its owner ends Serve.
func TestWrappedAcceptFails(t *testing.T) {
	l := &failing{Listener: newLimiter(t, 1).Listener}
	s := &srv{Handler: &handler{t: t}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c := dial(t, l.Addr().String())
	echoes(t, c, "echo")
	if n := l.failures.Load(); n < 3 {
		t.Errorf("Accept was called %d times", n)
	}
	l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v", err)
	}
	echoes(t, c, "still")
	s.Close()
	shutdown(t, s)
}

type failing struct {
	net.Listener
	failures atomic.Int64
}

func (l *failing) Accept() (net.Conn, error) {
	if l.failures.Add(1) < 3 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}
