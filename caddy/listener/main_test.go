package listener

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

func TestMain(m *testing.M) {
	if playRole() {
		return
	}
	os.Exit(m.Run())
}

// A site is a server of Caddy in this process.
type site struct {
	addr   string
	secure bool
	dir    string // has the certificate and the log
}

// A setting is what differs between sites.
type setting struct {
	secure    bool
	wrappers  string // listener_wrappers; none if empty
	protocols string // h1 h2 if empty
	routes    string // what answers requests; they are echoed if it is empty
}

const echo = `respond "{http.request.method} {http.request.uri} {http.request.proto} {http.request.body}"`

// config returns a Caddyfile.
func (s *site) config(set setting) string {
	protocols, routes := set.protocols, set.routes
	if protocols == "" {
		protocols = "h1 h2"
	}
	if routes == "" {
		routes = echo
	}
	wrappers := ""
	if set.wrappers != "" {
		wrappers = "listener_wrappers {\n" + set.wrappers + "\n}"
	}
	_, port, _ := net.SplitHostPort(s.addr)
	scheme, certificate := "http", ""
	if s.secure {
		scheme, certificate = "https", fmt.Sprintf("tls %s/cert.pem %[1]s/key.pem", s.dir)
	}
	return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	metrics
	storage file_system %[1]s
	log {
		output file %[1]s/log
		level DEBUG
	}
	servers {
		protocols %[2]s
		%[3]s
	}
}
%[4]s://localhost:%[5]s {
	bind 127.0.0.1
	%[6]s
	handle /metrics {
		metrics
	}
	handle {
		%[7]s
	}
}
`, s.dir, protocols, wrappers, scheme, port, certificate, routes)
}

// newSite returns a site that does not run.
func newSite(t testing.TB, secure bool) *site {
	t.Helper()
	s := &site{addr: freeport.Addrs(t, 1)[0], secure: secure, dir: t.TempDir()}
	if secure {
		check.OK(t, writeCertificate(s.dir))
	}
	return s
}

func writeCertificate(dir string) error {
	cert := conntest.MakeCertificate()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// run starts a site, which ends with the test.
func run(t testing.TB, set setting) *site {
	t.Helper()
	s := newSite(t, set.secure)
	s.load(t, set)
	t.Cleanup(func() {
		check.OK(t, caddy.Stop())
		check.OK(t, awaitEnded(context.Background()))
	})
	return s
}

// load loads a configuration of a site.
func (s *site) load(t testing.TB, set setting) {
	t.Helper()
	check.OK(t, load(s.config(set)))
}

func load(caddyfile string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// log returns the log of a site.
func (s *site) log(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(s.dir + "/log")
	check.OK(t, err)
	return string(b)
}

// dial connects to a site.
func (s *site) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := s.connect()
	check.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (s *site) connect() (net.Conn, error) {
	if s.secure {
		return tls.Dial("tcp", s.addr, clientTLS("http/1.1"))
	}
	return net.Dial("tcp", s.addr)
}

func clientTLS(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: protocols}
}

// client returns a client with a connection pool of its own, whose connections are of HTTP/1.1, or of HTTP/2 with h2.
func (s *site) client(t testing.TB, h2 bool) *http.Client {
	c := s.newClient(h2)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (s *site) newClient(h2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: clientTLS(), Protocols: new(http.Protocols)}
	switch {
	case !h2:
		tr.Protocols.SetHTTP1(true)
	case s.secure:
		tr.Protocols.SetHTTP2(true)
	default:
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Client{Transport: tr}
}

func (s *site) url(path string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	if s.secure {
		return "https://127.0.0.1:" + port + path
	}
	return "http://127.0.0.1:" + port + path
}

// get returns the body of an answer.
func (s *site) get(c *http.Client, path string) (string, error) { return s.do(c, "GET", path, nil) }

func (s *site) do(c *http.Client, method, path string, body io.Reader) (string, error) {
	req, err := http.NewRequest(method, s.url(path), body)
	if err != nil {
		return "", err
	}
	req.Host = "localhost"
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// countParked returns the number of parked connections that Caddy's metrics have.
func (s *site) countParked() (n int, err error) {
	c := s.newClient(false)
	defer c.CloseIdleConnections()
	text, err := s.get(c, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, fmt.Sprintf(`caddy_park_connections{address="%s",state="parked"} `, s.addr)); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, err
}

// awaitParked waits until n connections are parked.
func (s *site) awaitParked(t testing.TB, n int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d connections are parked", n), func() bool {
		got, err := s.countParked()
		check.OK(t, err)
		return got == n
	})
}

// serving returns the number of goroutines of net/http that serve a connection.
func serving() int {
	var stacks bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	return strings.Count(stacks.String(), "\nnet/http.(*conn).serve(")
}

// roundTrip sends a request of HTTP/1.1 and returns the body of the answer.
func roundTrip(conn net.Conn, path string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// hooks records the calls of the hooks that a module of another program has registered.
var hooks struct {
	sync.Mutex
	states   map[string][]http.ConnState // by the client's address
	contexts map[string]int
}

// A hooking is a listener wrapper that registers hooks.
type hooking struct{}

func init() {
	caddy.RegisterModule(hooking{})
	caddy.RegisterModule(counting{})
	caddy.RegisterModule(hiding{})
	caddy.RegisterModule(panicking{})
	httpcaddyfile.RegisterHandlerDirective("test_panic", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return panicking{}, nil
	})
}

func (hooking) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.test_hooks", New: func() caddy.Module { return new(hooking) }}
}

func (hooking) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (hooking) WrapListener(l net.Listener) net.Listener { return l }

type hookKey struct{}

func (hooking) Provision(ctx caddy.Context) error {
	server := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	hooks.Lock()
	defer hooks.Unlock()
	hooks.states, hooks.contexts = make(map[string][]http.ConnState), make(map[string]int)
	server.RegisterConnState(func(c net.Conn, s http.ConnState) {
		hooks.Lock()
		defer hooks.Unlock()
		hooks.states[c.RemoteAddr().String()] = append(hooks.states[c.RemoteAddr().String()], s)
	})
	server.RegisterConnContext(func(ctx context.Context, c net.Conn) context.Context {
		hooks.Lock()
		defer hooks.Unlock()
		hooks.contexts[c.RemoteAddr().String()]++
		return context.WithValue(ctx, hookKey{}, c.RemoteAddr().String())
	})
	return nil
}

// A counting is a listener wrapper that counts connections that become idle, and notes the registry of the metrics.
type counting struct{}

var (
	idled    atomic.Int64
	registry atomic.Pointer[prometheus.Registry]
)

func (counting) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.test_count", New: func() caddy.Module { return new(counting) }}
}

func (counting) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (counting) WrapListener(l net.Listener) net.Listener { return l }

func (counting) Provision(ctx caddy.Context) error {
	registry.Store(ctx.GetMetricsRegistry())
	ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server).RegisterConnState(func(_ net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			idled.Add(1)
		}
	})
	return nil
}

// A hiding is a listener wrapper whose connections are no *tls.Conns.
type hiding struct{}

func (hiding) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.test_hiding", New: func() caddy.Module { return new(hiding) }}
}

func (hiding) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (hiding) WrapListener(l net.Listener) net.Listener {
	return conntest.Wrapping(l, func(conn net.Conn) net.Conn { return hidingConn{conn.(*tls.Conn)} })
}

type hidingConn struct{ *tls.Conn }

// A panicking is a handler that panics, and for the path /context answers what the hook ConnContext has put there.
type panicking struct{}

func (panicking) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_panic", New: func() caddy.Module { return new(panicking) }}
}

func (panicking) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	switch r.URL.Path {
	case "/panic":
		panic("a panic of a test")
	case "/context":
		fmt.Fprint(w, r.Context().Value(hookKey{}))
		return nil
	}
	return next.ServeHTTP(w, r)
}
