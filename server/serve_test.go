package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestShutdown(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		release := make(chan struct{})
		busy := make(chan struct{}, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			if string(buf[:n]) == "busy" {
				busy <- struct{}{}
				<-release
			}
			_, err = c.Write(buf[:n])
			return err
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 2}
		addr := start(t, s)
		idle, working := dial(t, addr), dial(t, addr)
		send(t, idle, "hello")
		expect(t, idle, "hello")
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
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial = %v", err)
		}
	})
}

// When the context is done, Shutdown closes what has not ended.
func TestShutdownExpires(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
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
		if err := h.cause(1); err != server.ErrServerClosed {
			t.Errorf("cause %v", err)
		}
	})
}

func TestListenAndServe(t *testing.T) {
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
	send(t, c, "hello")
	expect(t, c, "hello")
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
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := new(srv).ServeSocket(l); err == nil {
		t.Error("no Handler is no error")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	if err := (&srv{Handler: &handler{t: t}, Workers: -1}).ListenAndServe("tcp", "127.0.0.1:0"); err == nil {
		t.Error("-1 workers is no error")
	}
	if err := (&srv{Handler: &handler{t: t}, Backend: "abacus"}).ListenAndServe("tcp", "127.0.0.1:0"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if err := (&srv{Handler: &handler{t: t}}).ServeSocket(nil); err == nil {
		t.Error("a nil socket is no error")
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := (&srv{Handler: &handler{t: t}}).Serve(notSocket{a}); err == nil {
		t.Error("a listener without a socket is no error")
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

type notSocket struct{ net.Conn }

func (notSocket) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func (notSocket) Addr() net.Addr { return nil }
