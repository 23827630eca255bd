package websocket

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/park"
)

func TestMain(m *testing.M) {
	if !playRole() {
		leaks.Main(m)
	}
}

// soon bounds the wait for anything that must happen.
const soon = 2 * time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}

// A host is an HTTP server that a test has started.
type host struct {
	addr   string
	server *Server
	tls    *tls.Config // of clients, or nil
}

// The kinds of hosts: net/http and park.HTTPServer, with and without TLS, and a wrapper that cannot be parked.
var hosts = []string{"net/http", "park", "net/http TLS", "park TLS", "opaque"}

// serve starts a server that ends with the test. Its listener may be wrapped, below TLS.
func serve(t testing.TB, kind string, s *Server, wrap ...func(net.Listener) net.Listener) *host {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h := &host{addr: ln.Addr().String(), server: s}
	for _, w := range wrap {
		ln = w(ln)
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.PingInterval == 0 {
		s.PingInterval = -1 // a slow machine may need longer than 40 seconds between two messages
	}
	if s.ReadTimeout == 0 {
		s.ReadTimeout = soon
	}
	hs := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	if kind == "net/http TLS" || kind == "park TLS" {
		cert, pool, err := selfcert.New(24*time.Hour, "localhost")
		must(t, err)
		h.tls = &tls.Config{RootCAs: pool, ServerName: "localhost"}
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	ended := make(chan error, 1)
	var shutdown func(context.Context) error
	switch kind {
	case "park", "park TLS":
		ps := &park.HTTPServer{Server: hs}
		go func() { ended <- ps.Serve(ln) }()
		shutdown = ps.Shutdown
	case "opaque":
		ln = opaqueListener{ln}
		fallthrough
	default:
		go func() { ended <- hs.Serve(ln) }()
		shutdown = hs.Shutdown
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		s.Close()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v, %+v", err, s.Stats())
		}
		if err := shutdown(ctx); err != nil {
			t.Errorf("shutdown of the host: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
		if st := s.Stats(); st.Conns != 0 || st.QueuedBytes != 0 || st.Parked != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	return h
}

// opaque connections have nothing below that could be found.
type opaqueListener struct{ net.Listener }

func (l opaqueListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &opaqueConn{inner: c}, err
}

type opaqueConn struct{ inner net.Conn }

func (c *opaqueConn) Read(b []byte) (int, error)         { return c.inner.Read(b) }
func (c *opaqueConn) Write(b []byte) (int, error)        { return c.inner.Write(b) }
func (c *opaqueConn) Close() error                       { return c.inner.Close() }
func (c *opaqueConn) LocalAddr() net.Addr                { return c.inner.LocalAddr() }
func (c *opaqueConn) RemoteAddr() net.Addr               { return c.inner.RemoteAddr() }
func (c *opaqueConn) SetDeadline(t time.Time) error      { return c.inner.SetDeadline(t) }
func (c *opaqueConn) SetReadDeadline(t time.Time) error  { return c.inner.SetReadDeadline(t) }
func (c *opaqueConn) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }

// CloseWrite lets the server end the stream before the connection.
func (c *opaqueConn) CloseWrite() error {
	return c.inner.(interface{ CloseWrite() error }).CloseWrite()
}

// A peer is a client that sends what a test tells it to, also what is wrong.
type peer struct {
	testing.TB
	net.Conn
	in     *bufio.Reader
	answer *http.Response
}

// connect connects and upgrades. Header lines may be added to the request, and bytes sent behind it.
func (h *host) connect(t testing.TB, header string, early ...byte) *peer {
	t.Helper()
	p := h.request(t, "GET / HTTP/1.1\r\nHost: "+h.addr+"\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+header+"\r\n"+string(early))
	if p.answer.StatusCode != http.StatusSwitchingProtocols ||
		p.answer.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%s %v", p.answer.Status, p.answer.Header)
	}
	return p
}

// request sends a request and reads the head of the answer.
func (h *host) request(t testing.TB, request string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	must(t, err)
	if h.tls != nil {
		conn = tls.Client(conn, h.tls)
	}
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(soon)))
	p := &peer{TB: t, Conn: conn, in: bufio.NewReader(conn)}
	_, err = io.WriteString(conn, request)
	must(t, err)
	p.answer, err = http.ReadResponse(p.in, &http.Request{Method: "GET"})
	must(t, err)
	return p
}

// socketOf returns the socket of a client's connection.
func socketOf(conn net.Conn) *net.TCPConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*net.TCPConn)
}

const (
	fin   = 0x80
	rsv1  = 0x40
	pong  = fin | opPong
	ping  = fin | opPing
	first = byte(Text) // the first fragment of a text
	more  = byte(opContinuation)
	last  = fin | opContinuation
)

func join(frames ...[]byte) []byte { return slices.Concat(frames...) }

// frame returns a frame of a client. first is the first byte.
func frame(first byte, payload string) []byte {
	b := appendHeader(nil, 0, false, len(payload))
	b[0], b[1] = first, b[1]|0x80
	mask := [4]byte{0x12, 0xfe, 0x56, 0x78}
	b = append(b, mask[:]...)
	from := len(b)
	b = append(b, payload...)
	unmask(b[from:], mask, 0)
	return b
}

func text(payload string) []byte { return frame(0x80|byte(Text), payload) }

func (p *peer) send(b ...byte) {
	p.Helper()
	_, err := p.Conn.Write(b)
	must(p, err)
}

// next reads a frame. It inflates the payload of a compressed one.
func (p *peer) next() (first byte, payload string) {
	p.Helper()
	first, payload, err := p.read()
	must(p, err)
	return first, payload
}

func (p *peer) read() (first byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return 0, "", err
	}
	n := uint64(head[1])
	switch head[1] {
	case 126:
		var b [2]byte
		if _, err := io.ReadFull(p.in, b[:]); err != nil {
			return 0, "", err
		}
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		if _, err := io.ReadFull(p.in, b[:]); err != nil {
			return 0, "", err
		}
		n = binary.BigEndian.Uint64(b[:])
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, p.in, int64(n)); err != nil {
		return 0, "", err
	}
	return head[0], b.String(), nil
}

// want reads a frame and compares it.
func (p *peer) want(first byte, payload string) {
	p.Helper()
	if f, got := p.next(); f != first || got != payload {
		p.Fatalf("frame %#x %.100q (%d bytes), want %#x %.100q (%d bytes)", f, got, len(got), first, payload, len(payload))
	}
}

func (p *peer) wantText(payload string) {
	p.Helper()
	p.want(0x80|byte(Text), payload)
}

// wantClose reads a close frame, and then the end of the stream.
func (p *peer) wantClose(code Code) {
	p.Helper()
	first, payload := p.next()
	got := CodeNone
	if len(payload) >= 2 {
		got = Code(binary.BigEndian.Uint16([]byte(payload)))
	}
	if first != 0x80|opClose || got != code {
		p.Fatalf("frame %#x %q (%d), want a close frame with %d", first, payload, got, code)
	}
}

// wantEnd wants the end of the stream, and then closes the connection, as peers do.
func (p *peer) wantEnd() {
	p.Helper()
	if n, err := io.Copy(io.Discard, p.in); n != 0 || err != nil {
		p.Fatalf("%d bytes and %v, want the end of the stream", n, err)
	}
	p.Conn.Close()
}

func closing(code Code, reason string) []byte {
	return frame(0x80|opClose, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

// echo is an OnMessage.
func echo(c *Conn, kind Kind, payload []byte) error { return c.Write(kind, payload) }

// ends collects what OnClose gets.
type ends chan error

func (e ends) closed(_ *Conn, err error) { e <- err }

func (e ends) wait(t testing.TB) error {
	t.Helper()
	return await.Receive(t, "OnClose is called", e)
}

func wantCode(t testing.TB, err error, code Code, remote bool) {
	t.Helper()
	var e *CloseError
	if !errors.As(err, &e) || e.Code != code || e.Remote != remote {
		t.Errorf("%v (%s), want code %d, remote %v", err, fmt.Sprintf("%T", err), code, remote)
	}
}
