package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// graceful runs a test for each kind of connection. The server starts with the first call of dial.
func graceful(t *testing.T, f func(t *testing.T, s *srv, h *handler, dial func() net.Conn)) {
	for _, kind := range []string{"tcp", "unix", "tls"} {
		t.Run(kind, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				config, client := certified(t)
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: backend, Workers: 2, TLSConfig: config, HandshakeTimeout: soon}
				network, addr := "tcp", "127.0.0.1:0"
				if kind == "unix" {
					noUnix(t)
					network, addr = "unix", socketPath(t)
				}
				l, err := net.Listen(network, addr)
				if err != nil {
					t.Fatal(err)
				}
				serve := sync.OnceFunc(func() {
					served(t, s, func() error {
						if kind == "tls" {
							return s.ServeTLS(l, "", "")
						}
						return s.Serve(l)
					})
				})
				f(t, s, h, func() net.Conn {
					serve()
					c := dialOn(t, network, l.Addr().String())
					if kind == "tls" {
						return tls.Client(c, client)
					}
					return c
				})
			})
		})
	}
}

// handshake makes the handshake of a connection, if it has TLS.
func handshake(t *testing.T, c net.Conn) {
	t.Helper()
	if c, ok := c.(*tls.Conn); ok {
		must(t, c.Handshake())
	}
}

// shuttingDown begins a Shutdown, and returns when it has. done waits for its end.
func shuttingDown(t *testing.T, s *srv) (done func()) {
	t.Helper()
	end := make(chan error, 1)
	go func() { end <- s.Shutdown(t.Context()) }()
	wait(t, func() bool { return s.ListenAndServe("tcp", "127.0.0.1:0") == server.ErrServerClosed })
	return func() {
		t.Helper()
		if err := <-end; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	}
}

// busyAt returns a function for Data that echoes. Where the text is "busy" it waits for release
// before that.
func busyAt(busy chan<- struct{}, release <-chan struct{}) func(c conn, buf []byte) error {
	return reading(func(c conn, text string) error {
		if text == "busy" {
			busy <- struct{}{}
			<-release
		}
		return write(c, text)
	})
}

// expectLast expects a text on each connection, and then its end.
func expectLast(t *testing.T, conns []net.Conn, text string) {
	t.Helper()
	for _, c := range conns {
		expect(t, c, text)
		expectEnd(t, c, io.EOF)
	}
}

// Connections that are accepted or in the backlog when Shutdown is called, and send their first request after that, are
// answered once.
func TestShutdownServesFirstRequests(t *testing.T) {
	const conns = 20
	graceful(t, func(t *testing.T, s *srv, h *handler, dial func() net.Conn) {
		server.Grace(s, time.Hour)
		var all []net.Conn
		for range conns {
			all = append(all, dial())
		}
		wait(t, func() bool { return s.Stats().Conns == conns })
		done := shuttingDown(t, s)
		for _, c := range all {
			send(t, c, "hello")
		}
		expectLast(t, all, "hello")
		done()
	})
}

// Connections in the backlog of a server whose workers are all busy are answered as well.
func TestShutdownServesBacklog(t *testing.T) {
	const conns = 20
	graceful(t, func(t *testing.T, s *srv, h *handler, dial func() net.Conn) {
		server.Grace(s, time.Hour)
		busy, release := make(chan struct{}, 2), make(chan struct{})
		h.data = busyAt(busy, release)
		working := []net.Conn{dial(), dial()}
		for _, c := range working {
			send(t, c, "busy")
		}
		<-busy
		<-busy
		var all []net.Conn
		for range conns {
			all = append(all, dial())
		}
		done := shuttingDown(t, s)
		go func() {
			for _, c := range all {
				c.Write([]byte("hello")) // which begins a handshake, too
			}
		}()
		close(release)
		expectLast(t, working, "busy")
		expectLast(t, all, "hello")
		done()
	})
}

// A first request may come in parts, and be answered by another goroutine.
func TestShutdownServesSlowFirstRequests(t *testing.T) {
	graceful(t, func(t *testing.T, s *srv, h *handler, dial func() net.Conn) {
		server.Grace(s, time.Hour)
		first := make(chan struct{}, 1)
		h.data = reading(func(c conn, text string) error {
			if c.Value.got = append(c.Value.got, text...); len(c.Value.got) < len("hello") {
				first <- struct{}{}
				return nil
			}
			c.Pause()
			got := c.Value.got
			go func() {
				c.Write(got)
				c.Resume()
			}()
			return nil
		})
		c := dial()
		handshake(t, c)
		h.conn(1)
		// Shutdown ends the stream of a connection that was served before, after it has looked at the first one. What the
		// first one sends before that is not its first request during Shutdown, and ends with what has arrived.
		served := dial()
		echoes(t, served, "hello")
		done := shuttingDown(t, s)
		expectEnd(t, served, io.EOF)
		send(t, c, "he")
		<-first
		send(t, c, "llo")
		expect(t, c, "hello")
		expectEnd(t, c, io.EOF)
		done()
	})
}

// Connections that send nothing end after the grace time, and old ones at once.
func TestShutdownOfSilentConnections(t *testing.T) {
	graceful(t, func(t *testing.T, s *srv, h *handler, dial func() net.Conn) {
		clock := testclock.Install(t)
		server.Grace(s, 200*time.Millisecond)
		old := dial()
		handshake(t, old)
		h.conn(1)
		clock.Advance(500 * time.Millisecond) // an old one is more than that
		c := dial()
		wait(t, func() bool { return s.Stats().Conns == 2 })
		done := shuttingDown(t, s)
		expectEnd(t, old, io.EOF)
		done()
		if _, with := c.(*tls.Conn); !with {
			expectEnd(t, c, io.EOF)
		}
	})
}

// The context bounds the grace time.
func TestShutdownGraceIsBounded(t *testing.T) {
	graceful(t, func(t *testing.T, s *srv, h *handler, dial func() net.Conn) {
		server.Grace(s, time.Hour)
		dial()
		wait(t, func() bool { return s.Stats().Conns == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); err != context.DeadlineExceeded {
			t.Errorf("Shutdown = %v", err)
		}
		shutdown(t, s)
	})
}
