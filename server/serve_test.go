package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestShutdown(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		release := make(chan struct{})
		busy := make(chan struct{}, 1)
		s := &srv{Handler: &handler{t: t, data: busyAt(busy, release)}, Backend: backend, Workers: 2}
		l := freeport.Listen(t)
		serve(t, s, l)
		addr := l.Addr().String()
		idle, working := dial(t, addr), dial(t, addr)
		echoes(t, idle, "hello")
		send(t, working, "busy")
		<-busy
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		expectEnd(t, idle, io.EOF) // while the other one is at work
		select {
		case err := <-done:
			t.Errorf("Shutdown did not wait: %v", err)
		default:
		}
		close(release)
		expect(t, working, "busy")
		expectEnd(t, working, io.EOF)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.ListenAndServe("tcp", "127.0.0.1:0"); err != server.ErrServerClosed {
			t.Errorf("ListenAndServe = %v", err)
		}
		if _, err := net.Dial("tcp", addr); !qemu.Is(err, errno.Refused) {
			t.Errorf("dial = %v", err)
		}
	})
}

// Shutdown lets a handler read all bytes that have arrived, however few it reads at a time.
func TestShutdownAfterData(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const size = 10_000 // one segment on every loopback: all has come when some has
		asked, release := make(chan struct{}), make(chan struct{})
		h := &handler{t: t}
		h.data = func(c conn, buf []byte) error {
			if len(c.Value.got) == 0 {
				close(asked)
				<-release
			}
			n, err := c.Read(buf[:500])
			c.Value.got = append(c.Value.got, buf[:n]...)
			if err != nil {
				return err
			}
			_, err = c.Write(buf[:n])
			return err
		}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 1000}
		c := dial(t, start(t, s))
		sent := stream(1, 0, size)
		send(t, c, string(sent))
		<-asked
		done := shuttingDown(t, s)
		close(release)
		expect(t, c, string(sent))
		expectEnd(t, c, io.EOF)
		done()
		h.wantCause(1, nil)
	})
}

// When the context is done, Shutdown closes the connections that are left.
func TestShutdownContextDone(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error { // never closes
			if _, err := c.Read(buf); err != io.EOF {
				return err
			}
			return nil
		}}
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		h.conn(1)
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
		defer cancel()
		if err := s.Shutdown(ctx); err != cause {
			t.Errorf("Shutdown = %v", err)
		}
		expectEnd(t, c, io.EOF)
		h.wantCause(1, server.ErrServerClosed)
	})
}

func TestListenAndServe(t *testing.T) {
	noUnix(t)
	s := &srv{Handler: &handler{t: t}}
	path := socketPath(t)
	done := make(chan error, 1)
	go func() { done <- s.ListenAndServe("unix", path) }()
	var c net.Conn
	wait(t, func() (ok bool) {
		var err error
		c, err = net.Dial("unix", path)
		return err == nil
	})
	defer c.Close()
	echoes(t, c, "hello")
	s.Close()
	if err := <-done; err != server.ErrServerClosed {
		t.Error(err)
	}
	shutdown(t, s)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the path stays: %v", err)
	}
}

func TestServeErrors(t *testing.T) {
	l := listenSocket(t)
	if err := new(srv).ServeSocket(l); err == nil {
		t.Error("no Handler is no error")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	for says, s := range map[string]*srv{
		"Workers must not be negative, got -1":    {Workers: -1},
		"Shards must not be negative, got -1":     {Shards: -1},
		"Shards must be at most 65536, got 65537": {Shards: 1<<16 + 1},
		"BufferSize must not be negative, got -1": {BufferSize: -1},
		"SlowPolicy must be at most 2, got 3":     {SlowPolicy: 3},
		"Workers must be at most 2, got 3":        {Workers: 3, MaxRunning: 2},
	} {
		s.Handler = &handler{t: t}
		if err := s.ListenAndServe("tcp", "127.0.0.1:0"); !errors.Is(err, socknotify.ErrInvalid) || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%v; want %s", err, says)
		}
	}
	if err := (&srv{Handler: &handler{t: t}, Backend: "abacus"}).ListenAndServe("tcp", "127.0.0.1:0"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if err := (&srv{Handler: &handler{t: t}}).ServeSocket(nil); err == nil {
		t.Error("a nil socket is no error")
	}
	if err := (&srv{Handler: &handler{t: t}}).Serve(nil); err == nil {
		t.Error("a nil listener is no error")
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := (&srv{Handler: &handler{t: t}}).Serve(notSocket{a}); err == nil {
		t.Error("a listener without a socket is no error")
	}
	var noContext context.Context
	if err := new(srv).Shutdown(noContext); !errors.Is(err, socknotify.ErrInvalid) {
		t.Errorf("Shutdown with a nil context: %v", err)
	}
	s := &srv{Handler: &handler{t: t}}
	if u, err := sock.New(sock.TCP4); err != nil {
		t.Fatal(err)
	} else if err := s.ServeSocket(u); err == nil {
		t.Error("a socket that does not listen is no error")
	}
	s.Close()
	shutdown(t, s)
}

// Closing a listener outside the server ends its Serve, and nothing else.
func TestListenerClosed(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, kind := range []string{"tcp", "unix", "sock", "tls"} {
			t.Run(kind, func(t *testing.T) {
				config, client := certified(t)
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: backend, Workers: 2, TLSConfig: config}
				other := start(t, s)
				var (
					l       interface{ Close() error }
					serve   func() error
					network = "tcp"
					addr    = "127.0.0.1:0"
				)
				if kind == "sock" {
					so := listenSocket(t)
					l, addr, serve = so, so.LocalAddr().String(), func() error { return s.ServeSocket(so) }
				} else {
					if kind == "unix" {
						noUnix(t)
						network, addr = "unix", socketPath(t)
					}
					nl, err := net.Listen(network, addr)
					if err != nil {
						t.Fatal(err)
					}
					l, addr, serve = nl, nl.Addr().String(), func() error { return s.Serve(nl) }
					if kind == "tls" {
						serve = func() error { return s.ServeTLS(nl, "", "") }
					}
				}
				ended := make(chan error, 1)
				go func() { ended <- serve() }()
				c := dialOn(t, network, addr)
				if kind == "tls" {
					c = tls.Client(c, client)
				}
				echoes(t, c, "hello")
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if late, err := net.Dial(network, addr); err == nil { // in the backlog of the duplicate
					late.SetDeadline(time.Now().Add(soon))
					if n, err := late.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%d bytes, %v", n, err)
					}
					late.Close()
				}
				if err := <-ended; !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), addr) {
					t.Errorf("Serve = %v", err)
				}
				wait(t, func() bool { // the poll backend holds a socket until its waiter has looked
					late, err := net.Dial(network, addr)
					if err == nil {
						late.Close()
					}
					return err != nil
				})
				echoes(t, c, "hello")
				echoes(t, dial(t, other), "hello")
				if n := s.Stats().Accepted; n != 2 {
					t.Errorf("%d accepted", n)
				}
			})
		}
	})
}

type notSocket struct{ net.Conn }

func (notSocket) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func (notSocket) Addr() net.Addr { return nil }
