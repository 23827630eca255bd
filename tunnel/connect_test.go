package tunnel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// connector serves a forward proxy. ask sends a request to it, and returns the status and the
// connection.
func connector(t *testing.T, p *ConnectProxy) (ask func(target, more string) (int, net.Conn)) {
	t.Helper()
	if p.Tunnels == nil {
		p.Tunnels = &Tunnels{}
	}
	newTunnels(t, p.Tunnels)
	srv := &park.HTTPServer{Server: &http.Server{Handler: p}}
	front := conntest.Listen(t)
	go srv.Serve(front)
	t.Cleanup(func() { srv.Close() })
	return func(target, more string) (int, net.Conn) {
		conn, err := net.Dial("tcp", front.Addr().String())
		check.OK(t, err)
		t.Cleanup(func() { conn.Close() })
		conntest.Send(t, conn, "CONNECT "+target+" HTTP/1.1\r\nHost: proxy\r\n"+more)
		conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
		check.OK(t, err)
		return r.StatusCode, &bufferedPeer{conn, in}
	}
}

func allowAll(*http.Request, netip.AddrPort) bool { return true }

// portOf returns the port of a listener.
func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// An allowed request becomes a tunnel, with what the client has sent behind it.
func TestConnectProxy(t *testing.T) {
	host := conntest.Listen(t)
	var asked netip.AddrPort
	controlled := false
	p := &ConnectProxy{Ports: []int{portOf(host)}, Inside: []string{"Localhost."}}
	p.Allow = func(r *http.Request, addr netip.AddrPort) bool {
		asked = addr
		return r.Header.Get("Proxy-Authorization") == "secret" && addr.Addr().Is4()
	}
	p.Dialer.Control = func(network, address string, _ syscall.RawConn) error {
		controlled = true
		return nil
	}
	code, client := connector(t, p)(fmt.Sprintf("localhost:%d", portOf(host)),
		"Proxy-Authorization: secret\r\n\r\nearly, ")
	if code != http.StatusOK || !controlled || !asked.Addr().IsLoopback() ||
		int(asked.Port()) != portOf(host) {
		t.Fatalf("status %d, control %t, asked for %v", code, controlled, asked)
	}
	conn, err := host.Accept()
	check.OK(t, err)
	defer conn.Close()
	conntest.Send(t, client, "and more")
	conntest.Expect(t, conn, "early, and more")
	conntest.Send(t, conn, "back")
	conntest.Expect(t, client, "back")
	endStream(t, client)
	conntest.ExpectRest(t, conn, "")
	conn.Close()
	conntest.ExpectRest(t, client, "")
}

// What is not allowed is refused, and nothing is connected to.
func TestConnectProxyRefuses(t *testing.T) {
	host := conntest.Listen(t)
	port := portOf(host)
	go func() {
		if conn, err := host.Accept(); err == nil {
			t.Errorf("a connection to %v was made", conn.LocalAddr())
			conn.Close()
		}
	}()
	here, ports, inside := fmt.Sprintf("127.0.0.1:%d", port), []int{port}, []string{"127.0.0.1"}
	allowNone := func(*http.Request, netip.AddrPort) bool { return false }
	at := func(host string) string { return fmt.Sprintf("%s:%d", host, port) }
	for name, c := range map[string]struct {
		p            ConnectProxy
		target, more string
		want         int
	}{
		"no Allow":       {ConnectProxy{Ports: ports, Inside: inside}, here, "", 403},
		"not by Allow":   {ConnectProxy{Ports: ports, Inside: inside, Allow: allowNone}, here, "", 403},
		"another port":   {ConnectProxy{Inside: inside, Allow: allowAll}, here, "", 403},
		"inside":         {ConnectProxy{Ports: ports, Allow: allowAll}, here, "", 403},
		"inside by name": {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, at("localhost"), "", 403},
		"unspecified":    {ConnectProxy{Ports: ports, Allow: allowAll}, at("0.0.0.0"), "", 403},
		"mapped":         {ConnectProxy{Ports: ports, Allow: allowAll}, at("[::ffff:127.0.0.1]"), "", 403},
		"a body": {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, here,
			"Content-Length: 1\r\n", 400},
		"no port":      {ConnectProxy{Allow: allowAll}, "host", "", 400},
		"a large port": {ConnectProxy{Allow: allowAll}, "host:65536", "", 400},
		"a named port": {ConnectProxy{Allow: allowAll}, "host:https", "", 400},
		"no host":      {ConnectProxy{Allow: allowAll}, ":443", "", 400},
		"a long host":  {ConnectProxy{Allow: allowAll}, strings.Repeat("h", 256) + ":443", "", 400},
		"a user":       {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, "a:b@" + here, "", 400},
		"no user":      {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, "@" + here, "", 400},
		"a path":       {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, here + "/", "", 400},
		"a query":      {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, here + "?", "", 400},
		"a URL":        {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, "http://" + here, "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			code, client := connector(t, &c.p)(c.target, c.more+"Connection: close\r\n\r\n")
			if code != c.want {
				t.Errorf("status %d, want %d", code, c.want)
			}
			io.Copy(io.Discard, client)
		})
	}
	host.Close()
}

// A host that cannot be reached is the gateway's error.
func TestConnectProxyFails(t *testing.T) {
	gone := conntest.Listen(t)
	gone.Close()
	p := ConnectProxy{Ports: []int{portOf(gone)}, Inside: []string{"127.0.0.1"}, Allow: allowAll}
	if code, _ := connector(t, &p)(gone.Addr().String(), "\r\n"); code != http.StatusBadGateway {
		t.Errorf("status %d", code)
	}
	late := ConnectProxy{Ports: []int{1}, Inside: []string{"127.0.0.1"}, Allow: allowAll}
	late.Dialer.ControlContext = func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		return context.DeadlineExceeded
	}
	if code, _ := connector(t, &late)("127.0.0.1:1", "\r\n"); code != http.StatusGatewayTimeout {
		t.Errorf("status %d", code)
	}
}

// Without a tunnel there is no 200: beyond MaxConns and after Shutdown the request is refused.
func TestConnectProxyFull(t *testing.T) {
	host := conntest.Listen(t)
	p := &ConnectProxy{Ports: []int{portOf(host)}, Inside: []string{"127.0.0.1"}, Allow: allowAll,
		Tunnels: &Tunnels{MaxConns: 1}}
	ask := connector(t, p)
	code, first := ask(host.Addr().String(), "\r\n")
	if code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	conn, err := host.Accept()
	check.OK(t, err)
	defer conn.Close()
	refused := func(what string) {
		t.Helper()
		code, client := ask(host.Addr().String(), "Connection: close\r\n\r\n")
		if code != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d", what, code)
		}
		if text, err := io.ReadAll(client); err != nil || strings.Contains(string(text), "park") {
			t.Errorf("%s: %q, %v", what, text, err)
		}
		backend, err := host.Accept() // it was dialed, and is closed
		check.OK(t, err)
		defer backend.Close()
		conntest.ExpectRest(t, backend, "")
	}
	refused("beyond MaxConns")
	if st := p.Tunnels.Stats(); st.Conns != 1 || st.Refused != 1 {
		t.Errorf("%+v", st)
	}
	conntest.Send(t, first, "x")
	conntest.Expect(t, conn, "x")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Tunnels.Shutdown(ctx) }()
	await.Until(t, "Shutdown has begun", p.Tunnels.group.HasEnded)
	refused("after Shutdown")
	conntest.Send(t, conn, "y")
	conntest.Expect(t, first, "y")
	cancel()
	check.Is(t, await.Value(t, done), context.Canceled)
}

// A method that panics keeps no place from another tunnel.
func TestConnectProxyPanics(t *testing.T) {
	host := conntest.Listen(t)
	g, _ := newTunnels(t, &Tunnels{MaxConns: 1})
	p := &ConnectProxy{Ports: []int{portOf(host)}, Inside: []string{"127.0.0.1"}, Allow: allowAll, Tunnels: g}
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
			if n := g.Stats().Conns; n != 0 {
				t.Errorf("%s: %d places are taken", what, n)
			}
		}()
		f()
	}
	r, err := http.NewRequest(http.MethodConnect, "//"+host.Addr().String(), nil)
	check.OK(t, err)
	panics("Hijack", func() { p.ServeHTTP(&panickingHijacker{statusWriter{header: http.Header{}}}, r) })
	a, _ := conntest.Pair(t, "tcp")
	b, _ := conntest.Pair(t, "tcp")
	panics("SetDeadline", func() { g.Join(a, panickingDeadline{b}) })
	check.OK(t, g.Join(a, b))
}

type panickingHijacker struct{ statusWriter }

func (*panickingHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { panic("Hijack") }

type panickingDeadline struct{ net.Conn }

func (panickingDeadline) SetDeadline(time.Time) error { panic("SetDeadline") }

// The reason of each refusal is logged, and not sent to the client.
func TestConnectProxyReasons(t *testing.T) {
	host, gone := conntest.Listen(t), conntest.Listen(t)
	gone.Close()
	port := portOf(host)
	here, ports, inside := host.Addr().String(), []int{port, portOf(gone)}, []string{"127.0.0.1"}
	allowNone := func(*http.Request, netip.AddrPort) bool { return false }
	for name, c := range map[string]struct {
		p            ConnectProxy
		target       string
		level, words string
	}{
		"no Allow":     {ConnectProxy{Ports: ports, Inside: inside}, here, "WARN", "CONNECT refused|Allow is nil"},
		"not by Allow": {ConnectProxy{Ports: ports, Inside: inside, Allow: allowNone}, here, "WARN", "CONNECT refused|" + here + ": tunnel: connect: the address is not allowed: Allow has refused it"},
		"another port": {ConnectProxy{Inside: inside, Allow: allowAll}, here, "WARN", fmt.Sprintf("CONNECT refused|port %d is not in Ports", port)},
		"inside":       {ConnectProxy{Ports: ports, Allow: allowAll}, here, "WARN", "CONNECT refused|" + here + ": tunnel: connect: the address is not allowed: it is inside of a network"},
		"dial":         {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, gone.Addr().String(), "WARN", "CONNECT failed|connection refused"},
		"a user":       {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, "a:secret@" + here, "DEBUG", "CONNECT refused|more than a host and a port"},
		"no port":      {ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll}, "host", "DEBUG", "CONNECT refused|not a host and a port"},
	} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			c.p.Tunnels = &Tunnels{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Name: "front"}
			code, client := connector(t, &c.p)(c.target, "Connection: close\r\n\r\n")
			text, err := io.ReadAll(client)
			if want := http.StatusText(code) + "\n"; err != nil || string(text) != want {
				t.Errorf("the client got %q, %v, want %q", text, err, want)
			}
			line := log.String()
			words := append(strings.Split(c.words, "|"), "level="+c.level, "remote="+client.LocalAddr().String(), "address=", "name=front")
			for _, want := range words {
				if !strings.Contains(line, want) && runtime.GOOS == "linux" {
					t.Errorf("%q has no %q", line, want)
				}
			}
			if strings.Count(line, "\n") != 1 || strings.Contains(line, "secret") {
				t.Errorf("%q", line)
			}
		})
	}
	full := &ConnectProxy{Ports: ports, Inside: inside, Allow: allowAll, Tunnels: &Tunnels{MaxConns: 1}}
	var log lockedBuffer
	full.Tunnels.Logger = slog.New(slog.NewTextHandler(&log, nil))
	ask := connector(t, full)
	ask(here, "\r\n")
	for range 30 {
		ask(here, "\r\n")
	}
	text := log.String()
	if n := strings.Count(text, "connection refused"); n < 10 || n >= 30 || !strings.Contains(text, "limit=MaxConns remote=127.0.0.1:") {
		t.Errorf("%d lines: %q", n, text)
	}
}

// A lockedBuffer is for a log and a test that reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Other methods are served by Other, or refused.
func TestConnectProxyOther(t *testing.T) {
	for _, other := range []bool{false, true} {
		p := &ConnectProxy{Tunnels: &Tunnels{Logger: conntest.Quiet}, Allow: allowAll}
		want := http.StatusMethodNotAllowed
		if other {
			p.Other, want = http.NotFoundHandler(), http.StatusNotFound
		}
		w := &statusWriter{header: http.Header{}}
		r, err := http.NewRequest("GET", "http://host/", nil)
		check.OK(t, err)
		p.ServeHTTP(w, r)
		if w.code != want {
			t.Errorf("status %d, want %d", w.code, want)
		}
		r.Method, r.ProtoMajor = http.MethodConnect, 2
		if p.ServeHTTP(w, r); w.code != http.StatusNotImplemented {
			t.Errorf("HTTP/2: status %d", w.code)
		}
	}
}

type statusWriter struct {
	header http.Header
	code   int
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *statusWriter) WriteHeader(code int)        { w.code = code }

// Each kind of address that is inside of a network is refused, in each form.
func TestIsInside(t *testing.T) {
	for list, want := range map[string]bool{
		`127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 ::127.0.0.1 0.0.0.0 0.1.2.3 :: 10.1.2.3 172.16.0.1
			172.31.255.255 192.168.1.1 169.254.169.254 ::ffff:169.254.169.254 64:ff9b::169.254.169.254
			64:ff9b::10.0.0.1 2002:7f00:1:: 2002:a00:1::1 64:ff9b:1::1 fe80::1 fe80::1%eth0 febf::1 fc00::1
			fd00:ec2::254 fec0::1 ff02::1 224.0.0.1 239.1.1.1 255.255.255.255 240.0.0.1 100.64.0.1
			100.100.100.200 192.0.0.192 198.18.0.1 168.63.129.16 2001:db8::1 2001::1 100::1 192.0.2.1`: true,
		`8.8.8.8 1.1.1.1 172.32.0.1 172.15.0.1 192.167.1.1 100.63.255.255 100.128.0.1 169.253.1.1 126.0.0.1
			128.0.0.1 2606:4700:4700::1111 2a00:1450:4001::200e ::ffff:8.8.8.8 64:ff9b::8.8.8.8
			2002:808:808::1 168.63.129.17 2001:4860:4860::8888`: false,
	} {
		for _, text := range strings.Fields(list) {
			if got := IsInside(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s: %t", text, got)
			}
		}
	}
}
