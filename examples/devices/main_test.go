package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A world is a running server, and what connects devices to it.
type world struct {
	t      *testing.T
	f      *fleet
	s      *server.Server[device]
	addr   string
	cert   tls.Certificate
	client *tls.Config
}

func start(t *testing.T, backend string) *world {
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, &fleet{devices: map[string]conn{}}, nil, l.Addr().String(), cert, &tls.Config{RootCAs: trust, ServerName: "localhost"}}
	w.s = serverOf(w.f, cert, trust, backend)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, w.s, l, w.f) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// device connects a device, and waits until it is in the registry.
func (w *world) device(name string) *tls.Conn {
	w.t.Helper()
	cert, err := selfcert.Issue(w.cert, 24*time.Hour, name)
	if err != nil {
		w.t.Fatal(err)
	}
	config := w.client.Clone()
	config.Certificates = []tls.Certificate{cert}
	old := w.connOf(name)
	c, err := tls.Dial("tcp", w.addr, config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	await.Until(w.t, name+" is connected", func() bool { c := w.connOf(name); return c != nil && c != old })
	return c
}

func (w *world) connOf(name string) conn {
	w.f.mu.RLock()
	defer w.f.mu.RUnlock()
	return w.f.devices[name]
}

func (w *world) expect(c *tls.Conn, command string) {
	w.t.Helper()
	if kind, rest, err := readFrame(c); err != nil || kind != 'c' || string(rest) != command {
		w.t.Fatalf("%c %q, %v; want %q", kind, rest, err, command)
	}
}

// closed reads until the connection ends.
func (w *world) closed(c *tls.Conn) {
	w.t.Helper()
	var late net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &late) && late.Timeout() {
		w.t.Fatal(err)
	}
}

func TestDevices(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		w := start(t, backend)
		a, b := w.device("a"), w.device("b")
		for _, piece := range []string{"\x00", "\x04mo", "ne\x00\x01p\x00\x01m"} { // two messages, and a heartbeat
			io.WriteString(a, piece)
		}
		await.Until(t, "both messages", func() bool { return w.f.messages.Load() == 2 })
		if err := w.f.push("c", nil); err != errUnknown {
			t.Error(err)
		}
		again := w.device("b") // the old connection is of no use
		w.closed(b)
		if err := w.f.push("b", []byte("stop")); err != nil {
			t.Error(err)
		}
		w.expect(again, "stop")
		for range perSec * 3 { // within less than two seconds
			a.Write(frameOf('m', nil))
		}
		w.closed(a)
		await.Until(t, "a has gone", func() bool { return w.f.push("a", nil) == errUnknown })
		if _, err := again.Write([]byte{0, 0, 0}); err != nil {
			t.Error(err)
		}
		w.closed(again)

		stranger, err := tls.Dial("tcp", w.addr, w.client)
		if err == nil { // the server's alert comes after the client's handshake
			_, err = stranger.Read(make([]byte, 1))
			stranger.Close()
		}
		if err == nil {
			t.Error("a client without a certificate is served")
		}
	})
}

// A device that sends nothing is closed, although the server writes to it.
func TestSilent(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		clock := testclock.Install(t)
		w := start(t, backend)
		silent := w.device("silent")
		for range await.Attempts(t, "the silent device is closed") {
			if w.f.push("silent", []byte("report")) != nil {
				break
			}
			clock.Advance(10 * time.Second)
		}
		w.closed(silent)
		if n := w.s.Stats().TimedOut.Idle; n != 1 {
			t.Errorf("%d were idle", n)
		}
	})
}

func TestLoad(t *testing.T) {
	w := start(t, "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := load(ctx, w.f, w.addr, w.cert, w.client.RootCAs, 50); err != nil {
		t.Fatal(err)
	}
	if n := w.s.Stats().Conns; n != 50 {
		t.Errorf("%d connections", n)
	}
	lost := w.connOf(nameOf(7))
	lost.Abort()
	await.Until(t, "the device comes back", func() bool { c := w.connOf(nameOf(7)); return c != nil && c != lost })
}
