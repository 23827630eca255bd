package proxyproto_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	proxy "github.com/pires/go-proxyproto"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/server/proxyproto"
	"github.com/socknotify/socknotify/sock"
)

const soon = time.Minute

// handler answers each line with the peer's address, and each connection's begin with what the header has said.
type handler struct{}

func (handler) Open(c *server.Conn[int]) error { return nil }

func (handler) Data(c *server.Conn[int], buf []byte) error {
	for {
		line, err := c.Line(100)
		if err != nil {
			return err
		}
		h, _ := c.Preamble().Value.(*proxy.Header)
		text := string(line) + " from " + c.RemoteAddr().String()
		if h != nil {
			text += " to " + c.LocalAddr().String()
			if tlvs, err := h.TLVs(); err == nil {
				for _, tlv := range tlvs {
					text += " " + string(tlv.Value)
				}
			}
		}
		c.Write([]byte(text + "\n"))
	}
}

func (handler) Close(c *server.Conn[int], cause error) {}

// start serves until the test ends.
func start(t *testing.T, s *server.Server[int]) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Handler = handler{}
	done := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			done <- s.ServeTLS(l, "", "")
		} else {
			done <- s.Serve(l)
		}
	}()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != server.ErrServerClosed {
			t.Error(err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	return c
}

func v2(t testing.TB, src, dst string, tlvs ...proxy.TLV) string {
	t.Helper()
	h := proxy.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(src)), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(dst)))
	if err := h.SetTLVs(tlvs); err != nil {
		t.Fatal(err)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func v2local() string { return string(proxy.SIGV2) + "\x20\x00\x00\x00" }

var good = map[string]string{ // a header to what the handler sees, or "" for the socket's own addresses
	"PROXY TCP4 192.0.2.1 198.51.100.1 1000 80\r\n":    "192.0.2.1:1000 to 198.51.100.1:80",
	"PROXY TCP6 2001:db8::1 2001:db8::2 65535 443\r\n": "[2001:db8::1]:65535 to [2001:db8::2]:443",
	"PROXY UNKNOWN\r\n":                             "",
	"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n": "",
}

func headers(t testing.TB) map[string]string {
	all := map[string]string{v2local(): ""}
	for h, want := range good {
		all[h] = want
	}
	all[v2(t, "192.0.2.9:5", "198.51.100.1:6")] = "192.0.2.9:5 to 198.51.100.1:6"
	all[v2(t, "[2001:db8::1]:5", "[2001:db8::2]:6", proxy.TLV{Type: proxy.PP2_TYPE_AUTHORITY, Value: []byte("example.org")})] =
		"[2001:db8::1]:5 to [2001:db8::2]:6 example.org"
	return all
}

func TestHeaders(t *testing.T) {
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []string{"plain", "tls"} {
		t.Run(with, func(t *testing.T) {
			s := &server.Server[int]{Preamble: proxyproto.Config{}.Preamble}
			if with == "tls" {
				s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
			}
			addr := start(t, s)
			for h, want := range headers(t) {
				for _, piece := range []int{1, 13, len(h)} {
					c := dial(t, addr)
					if want == "" {
						want = c.LocalAddr().String() + " to " + addr
					}
					for n := 0; n < len(h); n += piece {
						io.WriteString(c, h[n:min(n+piece, len(h))])
					}
					if with == "tls" {
						tc := tls.Client(c, &tls.Config{RootCAs: trust, ServerName: "localhost"})
						defer tc.Close()
						c = tc
					}
					io.WriteString(c, "hello\n")
					got, err := bufio.NewReader(c).ReadString('\n')
					if err != nil || got != "hello from "+want+"\n" {
						t.Errorf("%q in pieces of %d: %q, %v; want %q", h, piece, got, err, want)
					}
					if headers(t)[h] == "" {
						want = ""
					}
				}
			}
		})
	}
}

var bad = []string{"GET / HTTP/1.1\r\n", "PROXY TCP4 192.0.2.1\r\n", "PROXY TCP4 300.0.0.1 192.0.2.1 1 2\r\n", "PROXYTCP4 ",
	"PROXY TCP4 192.0.2.1 198.51.100.1 1000 80\n", "PROXY " + strings.Repeat("x", 107), "\r\n\r\n\x00\r\nQUIX",
	string(proxy.SIGV2) + "\x31", string(proxy.SIGV2) + "\x21\x11\x00\x01x", string(proxy.SIGV2) + "\x21\x99\x00\x00"}

// A connection without a valid header is closed at once and counted, and half a header has a timeout.
func TestBadHeaders(t *testing.T) {
	s := &server.Server[int]{Preamble: proxyproto.Config{}.Preamble, HandshakeTimeout: time.Hour}
	addr := start(t, s)
	for i, h := range bad {
		c := dial(t, addr)
		io.WriteString(c, h)
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%q: %q, %v", h, b, err)
		}
		await.Until(t, fmt.Sprintf("%q is counted", h), func() bool {
			return s.Stats().RejectedHeaders == uint64(i+1)
		})
	}
	short := &server.Server[int]{Preamble: proxyproto.Config{}.Preamble, HandshakeTimeout: 50 * time.Millisecond}
	addr = start(t, short)
	for h := range headers(t) {
		c := dial(t, addr)
		io.WriteString(c, h[:len(h)-1])
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("half of %q: %q, %v", h, b, err)
		}
	}
}

// Only trusted peers may name an address. Others are refused, or served as they are.
func TestTrusted(t *testing.T) {
	const h = "PROXY TCP4 192.0.2.1 198.51.100.1 1000 80\r\n"
	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	here := append(elsewhere, netip.MustParsePrefix("127.0.0.0/8"))
	for name, c := range map[string]struct {
		config     proxyproto.Config
		send, want string
	}{
		"trusted":        {proxyproto.Config{Trusted: here}, h + "hello\n", "hello from 192.0.2.1:1000 to 198.51.100.1:80\n"},
		"refused":        {proxyproto.Config{Trusted: elsewhere}, h + "hello\n", ""},
		"direct":         {proxyproto.Config{Trusted: elsewhere, Direct: true}, "hello\n", "hello from 127.0.0.1:"},
		"direct, header": {proxyproto.Config{Trusted: elsewhere, Direct: true}, h, "PROXY TCP4 192.0.2.1 198.51.100.1 1000 80 from 127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server.Server[int]{Preamble: c.config.Preamble}
			conn := dial(t, start(t, s))
			io.WriteString(conn, c.send)
			got, _ := bufio.NewReader(conn).ReadString('\n')
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if _, err := (proxyproto.Config{Trusted: elsewhere}).Preamble(&net.UnixAddr{}, nil, nil); err != sock.ErrWouldBlock {
		t.Errorf("on a Unix socket: %v", err)
	}
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:10.1.1.1")}
	if _, err := (proxyproto.Config{Trusted: elsewhere}).Preamble(mapped, nil, nil); err != sock.ErrWouldBlock {
		t.Errorf("from a mapped address: %v", err)
	}
	if _, err := (proxyproto.Config{Trusted: elsewhere}).Preamble(nil, nil, nil); err != proxyproto.ErrUntrusted {
		t.Errorf("from an unknown address: %v", err)
	}
}

// The limit for one address counts that of the header.
func TestLimitPerAddress(t *testing.T) {
	s := &server.Server[int]{Preamble: proxyproto.Config{}.Preamble, MaxConnsPerAddr: 1}
	addr := start(t, s)
	udp, err := proxy.HeaderProxyFromAddrs(2, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 3), Port: 1}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 4), Port: 1}).Format()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{v2(t, "192.0.2.1:1", "192.0.2.4:1"), v2(t, "192.0.2.2:1", "192.0.2.4:1"), string(udp)} {
		first, second := dial(t, addr), dial(t, addr)
		io.WriteString(first, h+"hello\n")
		if got, err := bufio.NewReader(first).ReadString('\n'); err != nil {
			t.Errorf("%q, %v", got, err)
		}
		before := s.Stats().Refused
		io.WriteString(second, h+"hello\n")
		if b, _ := io.ReadAll(second); len(b) > 0 || s.Stats().Refused != before+1 {
			t.Errorf("a second connection is answered with %q; %+v", b, s.Stats())
		}
	}
}

// Preamble agrees with the parser, and asks for more bytes exactly as long as the header is not complete.
func FuzzPreamble(f *testing.F) {
	for h := range headers(f) {
		f.Add([]byte(h + "rest"))
	}
	for _, h := range bad {
		f.Add([]byte(h))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
		p, err := proxyproto.Config{}.Preamble(remote, remote, b)
		if err == sock.ErrWouldBlock {
			return
		}
		h, want := proxy.Read(bufio.NewReader(bytes.NewReader(b)))
		if (err == nil) != (want == nil) {
			t.Fatalf("%v, the parser says %v", err, want)
		}
		if err != nil {
			return
		}
		if p.N <= 0 || p.N > len(b) || !p.Value.(*proxy.Header).EqualsTo(h) {
			t.Fatalf("%+v, the parser has %+v", p, h)
		}
		for n := range p.N {
			if _, err := (proxyproto.Config{}).Preamble(remote, remote, b[:n]); err != sock.ErrWouldBlock {
				t.Fatalf("%d of %d bytes: %v", n, p.N, err)
			}
		}
		if p.Remote == nil != (p.Local == nil) {
			t.Fatalf("%+v", p)
		}
	})
}
