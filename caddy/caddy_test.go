package caddy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/tunnel"
)

// A site is Caddy, in this process, with one site.
type site struct {
	t       testing.TB
	address string // on which the site listens
	secure  bool
	dir     string
	servers string // global options of the server
}

const globalOptions = `{
	admin off
	persist_config off
	default_bind 127.0.0.1
	auto_https disable_redirects
	storage file_system $DIR
	log {
		output file $DIR/default.log
	}
	servers {
		$SERVERS
	}
}
`

// config makes a configuration. In it $SITE is the line of the site, with the options of TLS if it is
// secure, $ADDRESS its host and port, and $DIR a folder.
func (s *site) config(caddyfile string) []byte {
	s.t.Helper()
	head := "http://" + s.address + " {"
	if s.secure {
		head = fmt.Sprintf("https://%s {\ntls %s %s", s.address, filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem"))
	}
	caddyfile = strings.NewReplacer("$SITE {", head, "$ADDRESS", s.address, "$DIR", s.dir, "$SERVERS", s.servers).Replace(
		globalOptions + caddyfile)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		s.t.Fatalf("%v, in\n%s", err, caddyfile)
	}
	return config
}

// writeCertificate writes a certificate for loopback to a folder.
func writeCertificate(dir string) error {
	cert, _, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		return err
	}
	certificate, key, err := selfcert.PEM(cert)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "cert.pem"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), key, 0o600))
}

// load makes Caddy have the configuration.
func (s *site) load(caddyfile string) {
	s.t.Helper()
	check.OK(s.t, caddy.Load(s.config(caddyfile), true))
}

// newSite runs Caddy until the end of the test. Tests that have one cannot run at the same time.
func newSite(t testing.TB, secure bool, caddyfile string, servers ...string) *site {
	t.Helper()
	s := &site{t: t, address: freeport.Addrs(t, 1)[0], secure: secure, dir: t.TempDir(), servers: strings.Join(servers, "\n")}
	if secure {
		check.OK(t, writeCertificate(s.dir))
	}
	s.load(caddyfile)
	t.Cleanup(func() {
		check.OK(t, caddy.Stop())
		await.Until(t, "no tunnel is left", func() bool { return tunnels.Stats().Conns == 0 })
	})
	return s
}

// log returns what a log has.
func (s *site) log(name string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	return string(b)
}

// A peer is an end of an upgraded connection.
type peer struct {
	net.Conn
	in *bufio.Reader
}

func (p *peer) Read(b []byte) (int, error) { return p.in.Read(b) }

func (p *peer) closeWrite() error { return p.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// expectEnd reads to the end, which is the end of the stream.
func (p *peer) expectEnd(t testing.TB, name, want string) {
	t.Helper()
	p.SetReadDeadline(time.Now().Add(conntest.Timeout))
	b, err := io.ReadAll(p)
	if string(b) != want || err != nil {
		t.Errorf("%s got %q, %v, want %q", name, b, err, want)
	}
}

// A backend upgrades each connection.
type backend struct {
	address  string
	accepted chan *peer
}

func newBackend(t testing.TB) *backend {
	ln := conntest.Listen(t)
	b := &backend{ln.Addr().String(), make(chan *peer, 1000)}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go b.upgrade(conn)
		}
	}()
	return b
}

func (b *backend) upgrade(conn net.Conn) {
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	switch {
	case err != nil:
		conn.Close()
	case r.Header.Get("Upgrade") == "":
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		conn.Close()
	default:
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		b.accepted <- &peer{conn, in}
	}
}

// request sends a request that asks for a protocol, and returns the answer. Where Caddy has one socket
// for each configuration, a reload resets connections that the old one has not accepted. So it may try
// again.
func (s *site) request(path, protocol string) (*peer, *http.Response) {
	s.t.Helper()
	for tries := 1; ; tries++ {
		p, r, err := s.try(path, protocol)
		if err == nil {
			return p, r
		}
		if tries == 3 {
			s.t.Fatal(err)
		}
	}
}

func (s *site) try(path, protocol string) (*peer, *http.Response, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, nil, err
	}
	s.t.Cleanup(func() { conn.Close() })
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"})
	}
	io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+s.address+"\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	return &peer{conn, in}, r, err
}

// dial returns both ends of a connection that is upgraded to a protocol.
func (s *site) dial(b *backend, path, protocol string) (client, server *peer) {
	s.t.Helper()
	client, r := s.request(path, protocol)
	if r.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("%s: %s", path, r.Status)
	}
	server = await.Value(s.t, b.accepted)
	s.t.Cleanup(func() { server.Close() })
	return client, server
}

// exchange sends a message each way.
func exchange(t testing.TB, client, server *peer) {
	t.Helper()
	conntest.Send(t, client, "question")
	conntest.Expect(t, server, "question")
	conntest.Send(t, server, "answer")
	conntest.Expect(t, client, "answer")
}

// resting waits until n tunnels are at rest, and no goroutine is left of Caddy's copying.
func resting(t testing.TB, n int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d tunnels are at rest", n), func() bool {
		st := tunnels.Stats()
		return st.Running == 0 && st.Waiting == 0 && st.Conns == n && st.Parked == 2*n && st.Unparkable == 0
	})
	await.Until(t, "no goroutine is left", func() bool { return !copying() })
}

// copying reports whether a goroutine has an upgraded connection, or is about to end.
func copying() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, of := range []string{"switchProtocolCopier", "handleUpgradeResponse", "caddyhttp.(*Server).ServeHTTP"} {
		if bytes.Contains(stacks, []byte(of)) {
			return true
		}
	}
	return false
}

// Idle upgraded connections have no goroutine, whatever is around park_upgrades and reverse_proxy, and
// half-closes are passed on.
func TestParkUpgrades(t *testing.T) {
	b := newBackend(t)
	for name, text := range map[string]string{
		"a site":                 "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}",
		"the order of lines":     "$SITE {\nreverse_proxy $BACKEND\npark_upgrades\n}",
		"access log":             "$SITE {\nlog {\noutput file $DIR/access.log\n}\npark_upgrades\nreverse_proxy $BACKEND\n}",
		"handle":                 "$SITE {\npark_upgrades\nhandle_path /ws/* {\nroute {\nreverse_proxy $BACKEND\n}\n}\n}",
		"inside of handle":       "$SITE {\nhandle /ws/* {\npark_upgrades\nreverse_proxy $BACKEND\n}\n}",
		"matcher":                "$SITE {\n@ws header Upgrade *\npark_upgrades @ws\nreverse_proxy $BACKEND\n}",
		"encode and intercept":   "$SITE {\nencode\nlog {\noutput file $DIR/access.log\n}\nintercept {\n@error status 500\nreplace_status @error 501\n}\npark_upgrades\nreverse_proxy $BACKEND\n}",
		"HTTP/1 alone":           "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}",
		"transport park":         "$SITE {\npark_upgrades\nreverse_proxy $BACKEND {\ntransport park {\ndial_timeout 2s\n}\n}\n}",
		"transport http":         "$SITE {\npark_upgrades\nreverse_proxy $BACKEND {\ntransport http {\ndial_timeout 2s\nversions 1.1\n}\n}\n}",
		"two proxies, a matcher": "$SITE {\npark_upgrades\nreverse_proxy /none 127.0.0.1:1\nreverse_proxy $BACKEND\n}",
		"a named route":          "&(proxy) {\nreverse_proxy $BACKEND {\ntransport park\n}\n}\n$SITE {\npark_upgrades\ninvoke proxy\n}",
		"timeouts":               "$SITE {\npark_upgrades\nreverse_proxy $BACKEND\n}",
	} {
		text = strings.ReplaceAll(text, "$BACKEND", b.address)
		t.Run(name, func(t *testing.T) {
			s := newSite(t, false, text, map[string]string{"HTTP/1 alone": "protocols h1",
				"timeouts": "timeouts {\nread_body 10s\nwrite 10m\n}"}[name])
			before := tunnels.Stats()
			client, server := s.dial(b, "/ws/1", "test")
			exchange(t, client, server)
			resting(t, 1)
			exchange(t, client, server)
			check.OK(t, client.closeWrite())
			conntest.ExpectRest(t, server, "")
			conntest.Send(t, server, "the end")
			check.OK(t, server.closeWrite())
			conntest.ExpectRest(t, client, "the end")
			after := tunnels.Stats()
			if after.Copied != before.Copied || after.Accepted != before.Accepted+1 || after.Panics != before.Panics {
				t.Errorf("%+v", after)
			}
		})
	}
}

// With TLS in front a connection keeps that of crypto/tls, and no goroutine.
func TestParkUpgradesTLS(t *testing.T) {
	b := newBackend(t)
	s := newSite(t, true, "$SITE {\nlog {\noutput file $DIR/access.log\n}\npark_upgrades\nreverse_proxy "+b.address+"\n}")
	client, server := s.dial(b, "/", "test")
	exchange(t, client, server)
	resting(t, 1)
	exchange(t, client, server)
	check.OK(t, server.closeWrite())
	conntest.ExpectRest(t, client, "")
	check.OK(t, client.closeWrite())
	conntest.ExpectRest(t, server, "")
}

// What park_upgrades does not take is copied by Caddy.
func TestLeftToCaddy(t *testing.T) {
	b := newBackend(t)
	for name, text := range map[string]string{
		"no park_upgrades":  "$SITE {\nreverse_proxy " + b.address + " {\ntransport park\n}\n}",
		"no transport":      "&(proxy) {\nreverse_proxy " + b.address + "\n}\n$SITE {\npark_upgrades\ninvoke proxy\n}",
		"read_timeout":      "$SITE {\npark_upgrades\nreverse_proxy " + b.address + " {\ntransport http {\nread_timeout 1h\n}\n}\n}",
		"write_timeout":     "$SITE {\npark_upgrades\nreverse_proxy " + b.address + " {\ntransport http {\nwrite_timeout 1h\n}\n}\n}",
		"without the lines": "$SITE {\nreverse_proxy " + b.address + "\n}",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, false, text)
			before := tunnels.Stats().Accepted
			client, server := s.dial(b, "/", "test")
			exchange(t, client, server)
			if !copying() || tunnels.Stats().Accepted != before {
				t.Error("it is a tunnel")
			}
			client.Close()
			server.Close()
		})
	}
}

// A panic of ours is logged, and costs one connection its tunnel, or what comes at its end.
func TestPanic(t *testing.T) {
	b := newBackend(t)
	s := newSite(t, false, "$SITE {\npark_upgrades\nreverse_proxy "+b.address+"\n}")
	tunnels.OnUpgrade = func(r *http.Response) tunnel.Options {
		if r.Request.URL.Path == "/begin" {
			panic("at the begin")
		}
		return onUpgrade(r)
	}
	tunnels.OnClose = func(t *tunnel.Tunnel, err error) {
		onClose(t, err)
		panic("at the end")
	}
	for _, path := range []string{"/begin", "/end"} {
		client, server := s.dial(b, path, "test")
		exchange(t, client, server)
		client.Close()
		server.Close()
		text := "at the " + path[1:]
		await.Until(t, "the panic is logged", func() bool { return strings.Contains(s.log("default.log"), text) })
	}
	await.Until(t, "all have ended", func() bool { return tunnels.Stats().Conns == 0 && !copying() })
	tunnels.OnUpgrade, tunnels.OnClose = onUpgrade, onClose
	client, server := s.dial(b, "/", "test")
	exchange(t, client, server)
	resting(t, 1)
}

// stream_timeout ends a connection by the ends of its streams.
func TestStreamTimeout(t *testing.T) {
	b := newBackend(t)
	s := newSite(t, false, "$SITE {\npark_upgrades\nreverse_proxy "+b.address+" {\nstream_timeout 200ms\n}\n}")
	client, server := s.dial(b, "/", "test")
	exchange(t, client, server)
	client.expectEnd(t, "the client", "")
	server.expectEnd(t, "the backend", "")
}

const (
	goodbye  = "\x88\x02\x03\xe9"     // code 1001
	question = "\x81\x82mask\x05\x08" // a whole frame
)

// expectGoodbye reads the close frame of a client, which is masked, and the end.
func (p *peer) expectGoodbye(t testing.TB) {
	t.Helper()
	var frame [8]byte
	p.SetReadDeadline(time.Now().Add(conntest.Timeout))
	_, err := io.ReadFull(p, frame[:])
	check.OK(t, err)
	if code := [2]byte{frame[6] ^ frame[2], frame[7] ^ frame[3]}; string(frame[:2]) != "\x88\x82" || string(code[:]) != goodbye[2:] {
		t.Errorf("the backend got %q", frame)
	}
	p.expectEnd(t, "after a close frame the backend", "")
}

// When the configuration ends, both peers of a WebSocket get a close frame, and those of another
// protocol the end of the stream.
func TestReload(t *testing.T) {
	b := newBackend(t)
	for _, secure := range []bool{false, true} {
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %t, stop %t", secure, stop), func(t *testing.T) {
				text := "$SITE {\npark_upgrades\nreverse_proxy " + b.address + " {\nstream_timeout %s\n}\n}"
				s := newSite(t, secure, fmt.Sprintf(text, "1h"))
				socketClient, socketServer := s.dial(b, "/", "websocket")
				otherClient, otherServer := s.dial(b, "/", "test")
				partClient, partServer := s.dial(b, "/", "WebSocket")
				conntest.Send(t, partClient, question[:7])
				conntest.Expect(t, partServer, question[:7])
				conntest.Send(t, socketClient, question)
				conntest.Expect(t, socketServer, question)
				resting(t, 3)
				if stop {
					check.OK(t, caddy.Stop())
				} else {
					s.load(fmt.Sprintf(text, "2h"))
				}
				socketClient.expectEnd(t, "the client of a WebSocket", goodbye)
				socketServer.expectGoodbye(t)
				otherClient.expectEnd(t, "the client of another protocol", "")
				otherServer.expectEnd(t, "the backend of another protocol", "")
				partClient.expectEnd(t, "the client in a frame", goodbye)
				partClient.Close()
				partServer.expectEnd(t, "the backend in a frame", "")
			})
		}
	}
}

// stream_close_delay lets connections go on after a reload.
func TestStreamCloseDelay(t *testing.T) {
	b := newBackend(t)
	text := "$SITE {\npark_upgrades\nreverse_proxy " + b.address + " {\nstream_close_delay %s\n}\n}"
	s := newSite(t, false, fmt.Sprintf(text, "1s"))
	client, server := s.dial(b, "/", "websocket")
	conntest.Send(t, client, question)
	conntest.Expect(t, server, question)
	resting(t, 1)
	begin := time.Now()
	s.load(fmt.Sprintf(text, "1h"))
	conntest.Send(t, client, question)
	conntest.Expect(t, server, question)
	second, secondServer := s.dial(b, "/", "websocket")
	client.expectEnd(t, "the client", goodbye)
	if d := time.Since(begin); d < time.Second {
		t.Errorf("after %v", d)
	}
	conntest.Send(t, second, question)
	conntest.Expect(t, secondServer, question)
	second.Close()
	secondServer.Close()
	server.Close()
}

// The access log has an entry at the begin and one at the end, where it has the request at all.
func TestAccessLog(t *testing.T) {
	b := newBackend(t)
	s := newSite(t, false, "$SITE {\nlog {\noutput file $DIR/access.log\n}\nlog_skip /skipped\npark_upgrades\nreverse_proxy "+b.address+"\n}")
	for _, path := range []string{"/skipped", "/logged?a=b"} {
		client, server := s.dial(b, path, "test")
		exchange(t, client, server)
		resting(t, 1) // Caddy has written its entry
		client.Close()
		server.Close()
		await.Until(t, "it has ended", func() bool { return tunnels.Stats().Conns == 0 })
	}
	await.Until(t, "there is a second entry", func() bool { return strings.Count(s.log("access.log"), "\n") == 2 })
	var entry struct {
		Logger, Msg string
		Request     struct{ Method, URI, Host, Proto, Client_IP string }
		Bytes_read  int
		Size        int
		Duration    float64
		Status      int
	}
	lines := strings.Split(s.log("access.log"), "\n")
	check.OK(t, json.Unmarshal([]byte(lines[1]), &entry))
	if entry.Msg != "closed upgraded connection" || !strings.HasPrefix(entry.Logger, "http.log.access") || entry.Status != 101 ||
		entry.Bytes_read != len("question") || entry.Size != len("answer") || entry.Duration <= 0 {
		t.Errorf("%+v", entry)
	}
	if r := entry.Request; r.Method != "GET" || r.URI != "/logged?a=b" || r.Host != s.address || r.Proto != "HTTP/1.1" || r.Client_IP != "127.0.0.1" {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(lines[0], `"status":101`) || strings.Contains(s.log("access.log"), "skipped") {
		t.Error(s.log("access.log"))
	}
}

// Open connections count as requests to their upstream: least_conn spreads them, and max_requests
// limits them, also after a reload.
func TestCount(t *testing.T) {
	first, second := newBackend(t), newBackend(t)
	text := "$SITE {\npark_upgrades\nreverse_proxy " + first.address + " " + second.address +
		" {\nlb_policy least_conn\nunhealthy_request_count 3\nheader_down X-Count {http.reverse_proxy.upstream.requests}\nstream_close_delay %s\n}\n}"
	s := newSite(t, false, fmt.Sprintf(text, "1h"))
	open := [2]atomic.Int64{}
	for i, b := range []*backend{first, second} {
		go func() {
			for p := range b.accepted {
				open[i].Add(1)
				go func() {
					io.Copy(io.Discard, p)
					p.Close()
					open[i].Add(-1)
				}()
			}
		}()
	}
	defer close(first.accepted)
	defer close(second.accepted)
	spread := func() {
		t.Helper()
		resting(t, 6)
		await.Until(t, "each backend has three", func() bool { return open[0].Load() == 3 && open[1].Load() == 3 })
	}
	refused := func() {
		t.Helper()
		if _, r := s.request("/", "test"); r.StatusCode != http.StatusServiceUnavailable {
			t.Error(r.Status)
		}
	}
	var clients []*peer
	for i := range 6 {
		client, _ := s.request("/", "test")
		clients = append(clients, client)
		resting(t, i+1) // until the request has ended, the connection counts twice
	}
	spread()
	refused()
	s.load(fmt.Sprintf(text, "2h"))
	refused()
	for range 2 {
		clients[0].Close()
		resting(t, 5)
		client, _ := s.request("/", "test")
		clients = append(clients[1:], client)
		spread()
		refused()
	}
	for _, client := range clients {
		client.Close()
	}
	await.Until(t, "all have ended", func() bool { return tunnels.Stats().Conns == 0 })
	if _, r := s.request("/", ""); r.StatusCode != http.StatusOK || r.Header.Get("X-Count") != "0" {
		t.Error(r.Status, r.Header)
	}
}

// Caddy's metrics count.
func TestMetrics(t *testing.T) {
	b := newBackend(t)
	s := newSite(t, false, "$SITE {\nmetrics /metrics\npark_upgrades\nreverse_proxy "+b.address+"\n}")
	client, server := s.dial(b, "/", "test")
	exchange(t, client, server)
	resting(t, 1)
	res, err := http.Get("http://" + s.address + "/metrics")
	check.OK(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	check.OK(t, err)
	for _, line := range []string{"caddy_park_upgrades_open 1\n", "\ncaddy_park_upgrades_joined_total ", "\ncaddy_park_upgrades_copied_total "} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// Configurations are adapted and validated, or refused with what is wrong.
func TestCaddyfile(t *testing.T) {
	adapt := func(text string) (map[string]any, error) {
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
		if err != nil {
			return nil, err
		}
		var m map[string]any
		check.OK(t, json.Unmarshal(config, &m))
		var all caddy.Config
		check.OK(t, json.Unmarshal(config, &all))
		return m, caddy.Validate(&all)
	}
	m, err := adapt("http://localhost:1 {\nhandle {\nreverse_proxy 127.0.0.1:2 {\ntransport park {\nread_buffer 8KiB\nkeepalive off\n}\n}\n}\npark_upgrades\n}")
	check.OK(t, err)
	text, _ := json.Marshal(m)
	at, proxy := bytes.Index(text, []byte(`"park_upgrades"`)), bytes.Index(text, []byte(`"reverse_proxy"`))
	if at < 0 || proxy < at || !bytes.Contains(text, []byte(`"protocol":"park"`)) || !bytes.Contains(text, []byte(`"read_buffer_size":8192`)) {
		t.Errorf("%s", text)
	}
	for text, want := range map[string]string{
		"http://localhost:1 {\npark_upgrades * now\n}":                                             "wrong argument count",
		"http://localhost:1 {\npark_upgrades {\nnow\n}\n}":                                         "wrong argument count",
		"http://localhost:1 {\nreverse_proxy 127.0.0.1:2 {\ntransport park {\nnow\n}\n}\n}":        "now",
		"http://localhost:1 {\nreverse_proxy 127.0.0.1:2 {\ntransport park {\nversions 9\n}\n}\n}": "unsupported HTTP version",
	} {
		if _, err := adapt(text); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// In JSON the handlers may be in one list.
func TestJSON(t *testing.T) {
	b := newBackend(t)
	s := &site{t: t, address: freeport.Addrs(t, 1)[0]}
	config := fmt.Sprintf(`{"admin": {"disabled": true, "config": {"persist": false}},
		"storage": {"module": "file_system", "root": %q}, "apps": {"http": {"servers": {"one": {"listen": [%q],
		"automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "park_upgrades"},
		{"handler": "reverse_proxy", "upstreams": [{"dial": %q}]}]}]}}}}}`, t.TempDir(), s.address, b.address)
	check.OK(t, caddy.Load([]byte(config), true))
	defer caddy.Stop()
	client, server := s.dial(b, "/", "test")
	exchange(t, client, server)
	resting(t, 1)
}

// parkProxies changes nothing but the transports of proxies.
func TestParkProxies(t *testing.T) {
	for _, c := range [][2]string{
		{`{"handler":"reverse_proxy"}`, `{"handler":"reverse_proxy","transport":{"protocol":"park"}}`},
		{`{"handler":"reverse_proxy","n":12345678901234567890,"transport":{"protocol":"http","tls":{}}}`,
			`{"handler":"reverse_proxy","n":12345678901234567890,"transport":{"protocol":"park","tls":{}}}`},
		{`{"handler":"reverse_proxy","transport":{"protocol":"fastcgi"}}`, `{"handler":"reverse_proxy","transport":{"protocol":"fastcgi"}}`},
		{`{"handler":"subroute","routes":[{"handle":[{"handler":"reverse_proxy"}]}]}`,
			`{"handler":"subroute","routes":[{"handle":[{"handler":"reverse_proxy","transport":{"protocol":"park"}}]}]}`},
		{`{"handler": "vars"}`, `{"handler": "vars"}`},
		{`no JSON`, `no JSON`},
	} {
		if got := string(parkProxies([]byte(c[0]))); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// Reloads under load lose no message of a connection that goes on.
func TestReloadUnderLoad(t *testing.T) {
	b := newBackend(t)
	text := "$SITE {\npark_upgrades\nreverse_proxy " + b.address + " {\nstream_close_delay %dh\n}\n}"
	s := newSite(t, false, fmt.Sprintf(text, 1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	const conns = 20
	for range conns {
		client, server := s.dial(b, "/", "websocket")
		go func() {
			buf := make([]byte, len(question))
			for ctx.Err() == nil {
				io.WriteString(client, question)
				if _, err := io.ReadFull(server, buf); err != nil || string(buf) != question {
					done <- fmt.Errorf("%q, %v", buf, err)
					return
				}
			}
			client.Close()
			server.Close()
			done <- nil
		}()
	}
	for i := range 5 {
		s.load(fmt.Sprintf(text, i+2))
		client, server := s.dial(b, "/", "test")
		exchange(t, client, server)
		client.Close()
		server.Close()
	}
	cancel()
	for range conns {
		check.OK(t, await.Value(t, done))
	}
}
