package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) {
	if r := os.Getenv(roleEnv); r != "" {
		role(r)
		return
	}
	leaks.Main(m)
}

// soon is the time after which a test gives up waiting for something that must happen.
const soon = time.Minute

type (
	conn = *server.Conn[*state]
	srv  = server.Server[*state]
)

// A state is used to check the order of the handler's calls.
type state struct {
	mu     sync.Mutex // never waited for: one call at a time
	opened bool
	closed bool
	got    []byte
	extra  any
}

// A handler is made of functions, and checks its calls.
type handler struct {
	t      testing.TB
	open   func(c conn) error
	data   func(c conn, buf []byte) error
	closed func(c conn, cause error)

	mu     sync.Mutex
	opens  int
	closes int
	causes []error
	conns  []conn
}

func (h *handler) enter(c conn) func() {
	if c.Value == nil || !c.Value.mu.TryLock() {
		h.t.Error("two calls at once")
		return func() {}
	}
	if c.Value.closed {
		h.t.Error("a call after Close")
	}
	return c.Value.mu.Unlock
}

func (h *handler) Open(c conn) error {
	c.Value = &state{}
	defer h.enter(c)()
	c.Value.opened = true
	h.mu.Lock()
	h.opens++
	h.conns = append(h.conns, c)
	h.mu.Unlock()
	if h.open != nil {
		return h.open(c)
	}
	return nil
}

func (h *handler) Data(c conn, buf []byte) error {
	defer h.enter(c)()
	if !c.Value.opened {
		h.t.Error("Data before Open")
	}
	if h.data != nil {
		return h.data(c, buf)
	}
	return echo(c, buf)
}

func (h *handler) Close(c conn, cause error) {
	defer h.enter(c)()
	c.Value.closed = true
	h.mu.Lock()
	h.closes++
	h.causes = append(h.causes, cause)
	h.mu.Unlock()
	if h.closed != nil {
		h.closed(c, cause)
	}
}

// told returns the causes of all connections that were closed.
func (h *handler) told() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.causes
}

// cause waits for the n-th Close and returns its cause.
func (h *handler) cause(n int) error {
	h.t.Helper()
	wait(h.t, func() bool { return len(h.told()) >= n })
	return h.told()[n-1]
}

// wantCause waits for the n-th Close and verifies its cause.
func (h *handler) wantCause(n int, want error) {
	h.t.Helper()
	if err := h.cause(n); err != want {
		h.t.Errorf("cause %v, want %v", err, want)
	}
}

// conn waits for the n-th connection.
func (h *handler) conn(n int) conn {
	h.t.Helper()
	wait(h.t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.conns) >= n })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[n-1]
}

// writable is a handler with Writable.
type writable struct {
	*handler
	writable func(c conn) error
}

func (h *writable) Writable(c conn) error {
	defer h.enter(c)()
	return h.writable(c)
}

func echo(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

// reading is a function for Data that reads once, and calls f with what it has read.
func reading(f func(c conn, text string) error) func(c conn, buf []byte) error {
	return func(c conn, buf []byte) error {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		return f(c, string(buf[:n]))
	}
}

// write writes a text, and returns the error alone.
func write(c conn, text string) error {
	_, err := c.Write([]byte(text))
	return err
}

// hijack hijacks a connection for a goroutine that calls f.
func hijack(c conn, f func(nc net.Conn)) error {
	nc, err := c.Hijack()
	if err == nil {
		go f(nc)
	}
	return err
}

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wait(t testing.TB, cond func() bool) {
	t.Helper()
	await.Until(t, "a condition", cond)
}

// A logged is the output of a logger, which a test reads.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) count(text string) int { return strings.Count(l.String(), text) }

// passing installs a clock whose time passes fast until the test ends. It is for tests in which something
// expires, and nothing may expire too early.
func passing(t testing.TB) *testclock.Clock {
	c := testclock.Install(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.Advance(25 * time.Millisecond)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return c
}

// start serves on a loopback address until the test ends, and checks then that every connection was closed.
func start(t testing.TB, s *srv) (addr string) {
	t.Helper()
	l := listen(t)
	serve(t, s, l)
	return l.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func listenSocket(t testing.TB) *sock.Socket {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t testing.TB, s *srv, l net.Listener) {
	t.Helper()
	served(t, s, func() error { return s.Serve(l) })
}

func served(t testing.TB, s *srv, serve func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != server.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
		shutdown(t, s)
		balanced(t, s.Handler)
	})
}

func shutdown(t testing.TB, s *srv) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if st := s.Stats(); st.Conns != 0 || st.QueuedBytes != 0 || st.Workers != 0 {
		t.Errorf("left: %+v", st)
	}
}

func balanced(t testing.TB, any server.Handler[*state]) {
	h, ok := any.(*handler)
	if w, is := any.(*writable); is {
		h, ok = w.handler, true
	}
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opens != h.closes {
		t.Errorf("%d opens, %d closes", h.opens, h.closes)
	}
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	return dialOn(t, "tcp", addr).(*net.TCPConn)
}

func dialOn(t testing.TB, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	return c
}

// An extended is a connection whose deadline is extended with each call.
type extended struct{ net.Conn }

func (p extended) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(soon))
	return p.Conn.Read(b)
}

func (p extended) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		p.SetWriteDeadline(time.Now().Add(soon))
		k, err = p.Conn.Write(b[n:min(n+16<<10, len(b))])
		n += k
	}
	return n, err
}

// CloseWrite ends the stream to the peer.
func (p extended) CloseWrite() error {
	return p.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// fewer returns the factor by which a test reduces its steps on a system where each takes long.
func fewer() int {
	if wine.AsksServer.Here() {
		return 100
	}
	if qemu.TakesLong.Here() {
		return 10
	}
	return 1
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	c.SetWriteDeadline(time.Now().Add(soon))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// sendPieces sends a text in pieces of a size.
func sendPieces(t testing.TB, c net.Conn, text string, size int) {
	t.Helper()
	for ; text != ""; text = text[min(size, len(text)):] {
		send(t, c, text[:min(size, len(text))])
	}
}

// expect reads a text, and fails if other bytes arrive.
func expect(t testing.TB, c net.Conn, text string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(soon))
	buf := make([]byte, len(text))
	for n := 0; n < len(buf); {
		k, err := c.Read(buf[n:])
		if n += k; err != nil && n < len(buf) {
			t.Fatalf("%q, %v; want %q", buf[:n], err, text)
		}
	}
	if string(buf) != text {
		t.Fatalf("%q, want %q", buf, text)
	}
}

// echoes sends a text and expects it back.
func echoes(t testing.TB, c net.Conn, text string) {
	t.Helper()
	send(t, c, text)
	expect(t, c, text)
}

// expectAll reads to the end of the stream, and fails unless it has these bytes.
func expectAll(t testing.TB, c net.Conn, want []byte) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
	}
}

// expectEnd fails unless the next Read returns an error that matches want.
func expectEnd(t testing.TB, c net.Conn, want error) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(soon))
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, want) {
		t.Fatalf("%d bytes, %v; want %v", n, err, want)
	}
}

// noUnix skips a test that needs Unix sockets, if there are none.
func noUnix(t testing.TB) {
	t.Helper()
	if wine.HasNoUnix.Here() {
		t.Skip(wine.HasNoUnix)
	}
}

// noHijack skips a test that needs Hijack, if that does not work: the socket goes to package net through os.NewFile, which
// associates it with a completion port, and net.FileConn must be able to remove it from that.
func noHijack(t testing.TB) {
	t.Helper()
	if wine.KeepsPort.Here() {
		t.Skip(wine.KeepsPort)
	}
}

func socketPath(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

// stream returns a part of the bytes that a connection sends. They depend on the connection and the position, so that a
// test finds bytes that are lost, duplicated, out of order, or from another connection.
func stream(id uint64, from, n int) []byte {
	first := from / 8
	b := make([]byte, 0, n+16)
	for at := first; at*8 < from+n; at++ {
		x := (id<<40 ^ uint64(at)) * 0x9e3779b97f4a7c15
		x ^= x >> 29
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 32
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[from-first*8:][:n:n]
}

func isReset(err error) bool { return qemu.Is(err, errno.Reset) }

// isLost reports whether err means that the peer is gone, for a connection that may be sending.
func isLost(err error) bool {
	return isReset(err) || errors.Is(err, syscall.EPIPE) || err != nil && wine.ForgetsReset.Here()
}

// failed returns the number of connections that ended before the handler knew them.
func failed(st server.Stats) uint64 {
	return st.Rejected + st.TimedOut.Handshake + st.EvictedHandshakes
}
