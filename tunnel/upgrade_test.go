package tunnel

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// An upgrading backend takes the first protocol that it speaks of those that a request offers: h2c,
// of which it reads the preface and the headers of one request, and websocket, which it echoes. It is
// as generous as a server can be in what it takes for an offer. seen receives what it has got.
func upgradingBackend(t *testing.T) (l net.Listener, seen chan string) {
	t.Helper()
	l, seen = conntest.Listen(t), make(chan string, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serveUpgrading(conn, seen)
			}()
		}
	}()
	return l, seen
}

func serveUpgrading(conn net.Conn, seen chan string) {
	conn.SetDeadline(time.Now().Add(conntest.Timeout))
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	offer := strings.ToLower(strings.Join(r.Header["Upgrade"], ","))
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
	switch {
	case strings.Contains(offer, "h2c"):
		io.WriteString(conn, answer+r.Header.Get("Upgrade")+"\r\n\r\n"+http2Frame(4, 0, 0, ""))
		preface := make([]byte, len(http2Preface))
		io.ReadFull(in, preface)
		text := ""
		for string(preface) == http2Preface {
			var head [9]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			io.ReadFull(in, payload)
			if head[3] == 1 {
				text = string(payload)
				break
			}
		}
		seen <- "h2c " + text
	case strings.Contains(offer, "websocket"):
		io.WriteString(conn, answer+"websocket\r\n\r\n")
		seen <- fmt.Sprint(r.Header["Upgrade"])
		io.Copy(conn, in)
	default:
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		seen <- fmt.Sprint(r.Header["Upgrade"], r.Header["Http2-Settings"], r.Header["Connection"], r.Header["X-Forwarded-For"])
	}
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func http2Frame(kind, flags, stream byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
}

const forged = "203.0.113.9"

// forgedRequest is HTTP/2 with a forged header.
var forgedRequest = http2Preface + http2Frame(4, 0, 0, "") +
	http2Frame(1, 5, 1, "\x82\x86\x84\x41\x04site\x00\x0fx-forwarded-for\x0b"+forged)

// upgradeProxy serves the wrapper in front of an upgrading backend. ask sends a request with more
// headers, and returns the answer and the connection.
func upgradeProxy(t *testing.T, g *Tunnels) (ask func(headers ...string) (*http.Response, net.Conn), seen chan string) {
	t.Helper()
	backend, seen := upgradingBackend(t)
	target := &url.URL{Scheme: "http", Host: backend.Addr().String()}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	newTunnels(t, g)
	front := conntest.Listen(t)
	srv := &park.HTTPServer{Server: &http.Server{Handler: g.ReverseProxy(&httputil.ReverseProxy{Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }})}}
	go srv.Serve(front)
	t.Cleanup(func() { srv.Close() })
	return func(headers ...string) (*http.Response, net.Conn) {
		t.Helper()
		conn, err := net.Dial("tcp", front.Addr().String())
		check.OK(t, err)
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(conntest.Timeout))
		conntest.Send(t, conn, "GET / HTTP/1.1\r\nHost: site\r\n"+strings.Join(headers, "\r\n")+"\r\n\r\n")
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, nil)
		check.OK(t, err)
		return r, &bufferedPeer{conn, in}
	}, seen
}

// No backend gets an offer to go on with HTTP. Otherwise requests would pass that no middleware sees.
func TestReverseProxyDropsHTTPUpgrade(t *testing.T) {
	ask, seen := upgradeProxy(t, &Tunnels{})
	const settings = "HTTP2-Settings: AAMAAABkAAQAAP__"
	for _, c := range []struct {
		headers []string
		left    string
	}{
		{[]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", settings}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: h2c", settings}, ""},
		{[]string{"Connection: upgrade", "upgrade: H2C", "http2-settings: "}, ""},
		{[]string{"Connection: Upgrade", settings}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: test, h2c"}, "test"},
		{[]string{"Connection: Upgrade", "Upgrade: h2c,test"}, "test"},
		{[]string{"Connection: Upgrade", "Upgrade: h2c", "Upgrade: test/2"}, "test/2"},
		{[]string{"Connection: Upgrade", "Upgrade: test", "Upgrade: h2c"}, "test"},
		{[]string{"Connection: Upgrade", "Upgrade: h2c, H2c", "Upgrade: ,h2c"}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: h2c/2"}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: test;h2c"}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: test h2c"}, ""},
		{[]string{"Connection: Upgrade", `Upgrade: "h2c"`}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: TLS/1.2, HTTP/1.1"}, ""},
		{[]string{"Connection: Upgrade", "Upgrade: HTTP/2.0"}, ""},
		{[]string{"Upgrade: h2c", settings}, ""},
	} {
		r, conn := ask(append(c.headers, "X-Forwarded-For: "+forged)...)
		if r.StatusCode == http.StatusSwitchingProtocols {
			conntest.Send(t, conn, forgedRequest)
		}
		want := "[] [] [] [127.0.0.1]"
		if c.left != "" {
			want = "[" + c.left + "] [] [Upgrade] [127.0.0.1]"
		}
		if got := await.Value(t, seen); r.StatusCode != http.StatusOK || got != want {
			t.Errorf("%q: status %d, the backend got %q, want %q", c.headers, r.StatusCode, got, want)
		}
		conn.Close()
	}
	for offer, want := range map[string]bool{"not-h2c-at-all": false, "tlsx": false, "websocket/13": false, "": false,
		"h2c": true, " h2 ": true, "TLS/1.0": true, "x,Http": true} {
		if got := offersHTTP(offer); got != want {
			t.Errorf("%q: %t", offer, got)
		}
	}
}

// Other protocols that are offered with it stay.
func TestReverseProxyKeepsWebSocket(t *testing.T) {
	for _, headers := range [][]string{
		{"Connection: Upgrade, HTTP2-Settings", "Upgrade: websocket, h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
		{"Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket"},
		{"Connection: Upgrade", "Upgrade: websocket"},
	} {
		g := &Tunnels{}
		ask, seen := upgradeProxy(t, g)
		r, conn := ask(headers...)
		if got := await.Value(t, seen); r.StatusCode != http.StatusSwitchingProtocols || got != "[websocket]" {
			t.Fatalf("%q: status %d, %s", headers, r.StatusCode, got)
		}
		conntest.Send(t, conn, "hello")
		conntest.Expect(t, conn, "hello")
		conn.Close()
		if n := g.Stats().Accepted; n != 1 {
			t.Errorf("%d tunnels", n)
		}
	}
}

// With UpgradeToHTTP the offers pass, and so does what follows them.
func TestReverseProxyUpgradeToHTTP(t *testing.T) {
	ask, seen := upgradeProxy(t, &Tunnels{UpgradeToHTTP: true})
	r, conn := ask("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
	if r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", r.StatusCode)
	}
	conntest.Send(t, conn, forgedRequest)
	if got := await.Value(t, seen); !strings.HasPrefix(got, "h2c ") || !strings.Contains(got, forged) {
		t.Errorf("the backend got %q", got)
	}
	conn.Close()
}

// The request that a caller of the wrapper has is not changed.
func TestReverseProxyKeepsRequest(t *testing.T) {
	g, _ := newTunnels(t, &Tunnels{})
	r, err := http.NewRequest("GET", "http://site/", nil)
	check.OK(t, err)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}, "Http2-Settings": {""}}
	var before, after bytes.Buffer
	r.Header.Write(&before)
	passed := make(chan http.Header, 1)
	g.ReverseProxy(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { passed <- r.In.Header },
		Transport:    failing{},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}}).ServeHTTP(&statusWriter{header: http.Header{}}, r)
	r.Header.Write(&after)
	if before.String() != after.String() {
		t.Errorf("%q, want %q", &after, &before)
	}
	if h := await.Value(t, passed); len(h["Upgrade"]) > 0 {
		t.Errorf("Rewrite got %v", h)
	}
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// A CONNECT request of HTTP/2 with such a protocol is refused.
func TestReverseProxyRefusesProtocol(t *testing.T) {
	for protocol, want := range map[string]int{"h2c": 501, "H2C": 501, "TLS/1.2": 501, "websocket": 502} {
		g, _ := newTunnels(t, &Tunnels{})
		r, err := http.NewRequest("CONNECT", "http://site/", nil)
		check.OK(t, err)
		r.ProtoMajor, r.Header = 2, http.Header{":protocol": {protocol}}
		w := &statusWriter{header: http.Header{}}
		g.ReverseProxy(&httputil.ReverseProxy{Transport: failing{}, Rewrite: func(*httputil.ProxyRequest) {},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(502) }}).ServeHTTP(w, r)
		if w.code != want {
			t.Errorf("%s: status %d, want %d", protocol, w.code, want)
		}
	}
}

// A response with status 101 that the proxy refuses leaves no connection to the backend open, and one that it takes brings no
// header that is for the proxy alone.
func TestReverseProxySwitchingHead(t *testing.T) {
	for name, c := range map[string]struct {
		head   string // of the backend, after the status line
		status int
	}{
		"another protocol": {"Connection: Upgrade\r\nUpgrade: other\r\n\r\n", http.StatusBadGateway},
		"no protocol":      {"Connection: Upgrade\r\n\r\n", http.StatusBadGateway},
		"hop-by-hop headers": {"Connection: Upgrade, X-Mine\r\nUpgrade: test\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nTe: x\r\n" +
			"Proxy-Authenticate: x\r\nProxy-Connection: keep-alive\r\nX-End: 1\r\n\r\n", http.StatusSwitchingProtocols},
	} {
		t.Run(name, func(t *testing.T) {
			backend := conntest.Listen(t)
			ended := make(chan error, 1)
			go func() {
				conn, err := backend.Accept()
				if err == nil {
					defer conn.Close()
					conn.SetDeadline(time.Now().Add(conntest.Timeout))
					in := bufio.NewReader(conn)
					if _, err = http.ReadRequest(in); err == nil {
						io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+c.head)
						_, err = in.ReadByte()
					}
				}
				ended <- err
			}()
			g, _ := newTunnels(t, &Tunnels{})
			target := &url.URL{Scheme: "http", Host: backend.Addr().String()}
			proxy := g.ReverseProxy(&httputil.ReverseProxy{Transport: new(http.Transport), ErrorLog: log.New(io.Discard, "", 0),
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
			ln := conntest.Listen(t)
			s := &park.HTTPServer{Server: &http.Server{Handler: proxy}}
			go s.Serve(ln)
			defer s.Close()
			conn, err := net.Dial("tcp", ln.Addr().String())
			check.OK(t, err)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(conntest.Timeout))
			conntest.Send(t, conn, upgradeRequest)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			check.OK(t, err)
			if r.StatusCode != c.status {
				t.Fatal(r.Status)
			}
			if c.status == http.StatusSwitchingProtocols {
				delete(r.Header, "Date")
				want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"test"}, "X-End": {"1"}}
				if !maps.EqualFunc(r.Header, want, slices.Equal) {
					t.Errorf("%v, want %v", r.Header, want)
				}
				conn.Close()
			}
			check.Is(t, await.Value(t, ended), io.EOF)
		})
	}
}
