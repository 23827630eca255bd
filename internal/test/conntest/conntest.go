// Package conntest has connections for tests: pairs over loopback, wrappers of every kind that packages park, stream and
// tunnel take, and TLS.
package conntest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
)

// A Log is a log that a test may read while it is written.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

var (
	stacks = regexp.MustCompile(`(?s)goroutine \d+ \[running\]:\n.*?\n\t.*?(\nlog: |$)`)
	Resets = regexp.MustCompile(`reset|broken pipe|aborted`)
	ports  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// String returns the log without the parts that differ between runs: port numbers and stack frames.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return stacks.ReplaceAllString(ports.ReplaceAllString(l.buf.String(), "address"), "a stack$1")
}

// Timeout is long enough for anything that must happen.
const Timeout = time.Minute

// Pair returns both ends of a new connection over loopback.
func Pair(t testing.TB, network string) (server, client net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/socket"
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for {
		if server, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		if network == "unix" || server.RemoteAddr().String() == client.LocalAddr().String() {
			break
		}
		server.Close() // of another test program, for which the port was another's
	}
	t.Cleanup(func() {
		server.Close()
		client.Close()
	})
	return server, client
}

// Outcome is the result of a function's Read.
type Outcome struct {
	Text string
	Err  error
	Conn net.Conn
}

// Reader returns a function that reads once, and the channel that receives the outcome.
func Reader() (func(net.Conn), chan Outcome) {
	c := make(chan Outcome, 16)
	return func(conn net.Conn) {
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		c <- Outcome{string(buf[:n]), err, conn}
	}, c
}

func Send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func Listen(t testing.TB) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// A BufferedConn reads ahead, as the connections of many protocols do.
type BufferedConn struct {
	net.Conn
	In *bufio.Reader
}

// Buffered returns a BufferedConn.
func Buffered(conn net.Conn) net.Conn { return Buffer(conn, bufio.NewReader(conn)) }

// Buffer is Buffered with a reader, which may have read ahead already.
func Buffer(conn net.Conn, in *bufio.Reader) net.Conn { return &BufferedConn{conn, in} }

func (c *BufferedConn) Read(p []byte) (int, error) { return c.In.Read(p) }

func (c *BufferedConn) NetConn() net.Conn { return c.Conn }

var ErrBytes = errors.New("wrong bytes")

// Quiet is for streams whose kinds are logged as ones that cannot be parked.
var Quiet = slog.New(slog.DiscardHandler)

// Kinds makes pairs of connections of which the first one becomes a stream.
var Kinds = map[string]func(testing.TB) (server, client net.Conn){
	"TCP":                          func(t testing.TB) (server, client net.Conn) { return Pair(t, "tcp") },
	"Unix":                         func(t testing.TB) (server, client net.Conn) { return Pair(t, "unix") },
	"TLS":                          TLSKind{Version: tls.VersionTLS13}.streams,
	"crypto/tls":                   TLSKind{tls.VersionTLS13, true}.streams,
	"TLS without handshake":        TLSKind{Version: tls.VersionTLS13}.fresh,
	"crypto/tls without handshake": TLSKind{tls.VersionTLS13, true}.fresh,
	"wrapper": func(t testing.TB) (server, client net.Conn) {
		a, b := Pair(t, "tcp")
		return Buffered(a), b
	},
	"header": func(t testing.TB) (server, client net.Conn) {
		a, b := Pair(t, "tcp")
		Send(t, b, "header\n")
		return NewHeaderConn(a), b
	},
	"opaque": func(t testing.TB) (server, client net.Conn) {
		a, b := Pair(t, "tcp")
		return OpaqueConn{a}, b
	},
	"unfit": func(t testing.TB) (server, client net.Conn) {
		a, b := Pair(t, "tcp")
		return &UnfitConn{a}, b
	},
}

func (k TLSKind) streams(t testing.TB) (server, client net.Conn) {
	s, c, _ := k.Pair(t)
	return s, c
}

func (k TLSKind) fresh(t testing.TB) (server, client net.Conn) {
	a, b := Pair(t, "tcp")
	return k.Server(t, a), tls.Client(b, &tls.Config{InsecureSkipVerify: true})
}

func EachKind(t *testing.T, test func(t *testing.T, pair func(testing.TB) (server, client net.Conn))) {
	for name, pair := range Kinds {
		t.Run(name, func(t *testing.T) { test(t, pair) })
	}
}

// ExpectRest reads until the end of a stream.
func ExpectRest(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(Timeout))
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != want {
		t.Fatalf("%d bytes %.50q and %v, want %d bytes", len(got), got, err, len(want))
	}
}

// Small makes the system queue little for a peer that does not read.
func Small(t testing.TB, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		for {
			in, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			c = in.NetConn()
		}
		switch o := c.(type) {
		case OpaqueConn:
			c = o.Hidden
		case *headerConn:
			c = o.Hidden
		case *UnfitConn:
			c = o.Conn
		case *HeldWriter:
			c = o.Conn
		}
		b := c.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		})
		check.OK(t, b.SetReadBuffer(64<<10))
		check.OK(t, b.SetWriteBuffer(32<<10))
	}
}

// StressDuration returns the duration of a stress test: the value of PARK_STRESS, such as 5m, or a default.
func StressDuration(t *testing.T) time.Duration {
	d := long.Or(1500*time.Millisecond, 400*time.Millisecond)
	if v := os.Getenv("PARK_STRESS"); v != "" {
		var err error
		d, err = time.ParseDuration(v)
		check.OK(t, err)
	}
	return d
}

func Certificate(t testing.TB) tls.Certificate {
	t.Helper()
	return MakeCertificate()
}

// makeCertificate returns a certificate for loopback.
func MakeCertificate() tls.Certificate {
	cert, _, err := selfcert.New(24*time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		panic(err)
	}
	return cert
}

// A HeldWriter is a connection that collects the bytes that are written while on is true. The test sends them itself.
type HeldWriter struct {
	net.Conn
	On   bool
	Held []byte
}

func (h *HeldWriter) Write(p []byte) (int, error) {
	if !h.On {
		return h.Conn.Write(p)
	}
	h.Held = append(h.Held, p...)
	return len(p), nil
}

// A tlsConn is a server's TLS connection.
type TLSConn interface {
	net.Conn
	HandshakeContext(context.Context) error
	ConnectionState() tls.ConnectionState
	NetConn() net.Conn
	CloseWrite() error
}

// A TLSKind is a version of TLS, and who serves it.
type TLSKind struct {
	Version   uint16
	CryptoTLS bool
}

func (k TLSKind) Server(t testing.TB, conn net.Conn) TLSConn {
	return k.ServerWith(conn, Certificate(t))
}

func (k TLSKind) ServerWith(conn net.Conn, cert tls.Certificate) TLSConn {
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: k.Version}
	if k.CryptoTLS {
		return tls.Server(conn, config)
	}
	return tlsrecord.Server(conn, config, nil)
}

// Pair returns a TLS connection after its handshake, and the HeldWriter below the client.
func (k TLSKind) Pair(t testing.TB) (server TLSConn, client *tls.Conn, h *HeldWriter) {
	t.Helper()
	a, b := Pair(t, "tcp")
	h = &HeldWriter{Conn: b}
	server = k.Server(t, a)
	client = tls.Client(h, &tls.Config{InsecureSkipVerify: true, MaxVersion: k.Version})
	failed := make(chan error, 1)
	go func() { failed <- server.HandshakeContext(context.Background()) }()
	check.OK(t, client.Handshake())
	check.OK(t, await.Value(t, failed))
	return server, client, h
}

func EachTLS(t *testing.T, test func(t *testing.T, k TLSKind)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { test(t, TLSKind{Version: v}) })
		t.Run("crypto/tls, "+tls.VersionName(v), func(t *testing.T) { test(t, TLSKind{v, true}) })
	}
}

// An OpaqueConn has none of the ways to the connection below it.
type OpaqueConn struct{ Hidden net.Conn }

// Opaque returns an OpaqueConn.
func Opaque(conn net.Conn) net.Conn { return OpaqueConn{conn} }

func (o OpaqueConn) Read(p []byte) (int, error) { return o.Hidden.Read(p) }

func (o OpaqueConn) Write(p []byte) (int, error) { return o.Hidden.Write(p) }

func (o OpaqueConn) Close() error { return o.Hidden.Close() }

func (o OpaqueConn) LocalAddr() net.Addr { return o.Hidden.LocalAddr() }

func (o OpaqueConn) RemoteAddr() net.Addr { return o.Hidden.RemoteAddr() }

func (o OpaqueConn) SetDeadline(t time.Time) error { return o.Hidden.SetDeadline(t) }

func (o OpaqueConn) SetReadDeadline(t time.Time) error { return o.Hidden.SetReadDeadline(t) }

func (o OpaqueConn) SetWriteDeadline(t time.Time) error { return o.Hidden.SetWriteDeadline(t) }

// An UnfitConn returns an error of its own after its read deadline has passed. So it may hold bytes that it does not
// return.
type UnfitConn struct{ net.Conn }

// Unfit returns an UnfitConn.
func Unfit(conn net.Conn) net.Conn { return &UnfitConn{conn} }

var ErrOwn = errors.New("own error")

func (u *UnfitConn) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrOwn
	}
	return n, err
}

// A headerConn reads a line, the header, when it is first used, as go-proxyproto does. A deadline that passes makes it
// take the header for missing. It holds the bytes that came with the header.
type headerConn struct {
	OpaqueConn
	once   sync.Once
	in     *bufio.Reader
	header string
}

func NewHeaderConn(conn net.Conn) net.Conn {
	return &headerConn{OpaqueConn: OpaqueConn{conn}, in: bufio.NewReader(conn)}
}

func (h *headerConn) Raw() net.Conn { return h.Hidden }

func (h *headerConn) TCPConn() (*net.TCPConn, bool) {
	c, ok := h.Hidden.(*net.TCPConn)
	return c, ok
}

func (h *headerConn) readHeader() {
	h.once.Do(func() { h.header, _ = h.in.ReadString('\n') })
}

func (h *headerConn) Read(p []byte) (int, error) {
	h.readHeader()
	return h.in.Read(p)
}

func (h *headerConn) RemoteAddr() net.Addr {
	h.readHeader()
	return h.OpaqueConn.RemoteAddr()
}

// A WrappingListener wraps each connection that it accepts.
type WrappingListener struct {
	net.Listener
	Wrap func(net.Conn) net.Conn
}

// Wrapping returns a WrappingListener.
func Wrapping(l net.Listener, wrap func(net.Conn) net.Conn) net.Listener {
	return WrappingListener{l, wrap}
}

func (l WrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.Wrap(conn), nil
}

type EmbeddingConn struct{ net.Conn }

// Embedding returns an EmbeddingConn.
func Embedding(conn net.Conn) net.Conn { return EmbeddingConn{conn} }

// EmbeddingPointer returns a pointer to an EmbeddingConn.
func EmbeddingPointer(conn net.Conn) net.Conn { return &EmbeddingConn{conn} }

func Expect(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	conn.SetReadDeadline(time.Now().Add(Timeout))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("%q, %v; want %q", buf, err, text)
	}
}
