package caddy

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// newEcho is a backend that echoes messages of WebSocket, compressed where the client does that.
func newEcho(t *testing.T) (address string) {
	upgrader := websocket.Upgrader{EnableCompression: true, CheckOrigin: func(*http.Request) bool { return true }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case websocket.IsWebSocketUpgrade(r):
		case r.URL.Path == "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, browserPage, strings.Trim(fmt.Sprint(echoSizes), "[]"))
			return
		case r.URL.Path == "/result":
			browserResults <- r.URL.RawQuery
			return
		default:
			io.WriteString(w, r.URL.Path)
			return
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// echoSizes are the lengths of messages: empty, those where the header of a frame becomes longer, and
// one that no buffer holds.
var echoSizes = []int{0, 1, 125, 126, 1 << 16, 3 << 20}

func gorillaClient(url string) error {
	dialer := websocket.Dialer{EnableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	conn, _, err := dialer.Dial(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
	for _, n := range echoSizes {
		message := bytes.Repeat([]byte("ab"), n/2+1)[:n]
		if err := conn.WriteMessage(websocket.BinaryMessage, message); err != nil {
			return err
		}
		if _, got, err := conn.ReadMessage(); err != nil || !bytes.Equal(got, message) {
			return fmt.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4000, "enough"), time.Now().Add(time.Minute))
	if _, _, err = conn.ReadMessage(); !websocket.IsCloseError(err, 4000) {
		return fmt.Errorf("at the end: %v", err)
	}
	return nil
}

func coderClient(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), conntest.Timeout)
	defer cancel()
	conn, _, err := coder.Dial(ctx, url, &coder.DialOptions{CompressionMode: coder.CompressionContextTakeover,
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	for _, n := range echoSizes {
		message := bytes.Repeat([]byte("ab"), n/2+1)[:n]
		if err := conn.Write(ctx, coder.MessageText, message); err != nil {
			return err
		}
		if _, got, err := conn.Read(ctx); err != nil || !bytes.Equal(got, message) {
			return fmt.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	return conn.Close(4000, "enough")
}

const nodeClient = `
	const WebSocket = require('ws')
	const [url, ...sizes] = process.argv.slice(1)
	const fail = e => { console.log('failed', e); process.exit(1) }
	const socket = new WebSocket(url, { rejectUnauthorized: false })
	const text = n => 'ab'.repeat(n / 2 + 1).slice(0, n)
	let at = 0
	const next = () => at < sizes.length ? socket.send(text(+sizes[at])) : socket.close(4000, 'enough')
	socket.on('error', fail)
	socket.on('open', next)
	socket.on('message', m => {
		if (m.toString() !== text(+sizes[at])) fail(sizes[at])
		at++
		next()
	})
	socket.on('close', code => { console.log(code, at); process.exit(0) })
`

func nodeWSClient(url string) error {
	args := []string{"-e", nodeClient, url}
	for _, n := range echoSizes {
		args = append(args, fmt.Sprint(n))
	}
	cmd := exec.Command("node", args...)
	cmd.Env = append(os.Environ(), "NODE_PATH=/usr/share/nodejs")
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("4000 %d\n", len(echoSizes)); err != nil || string(out) != want {
		return fmt.Errorf("%v: %s", err, out)
	}
	return nil
}

// browserPage does what the other clients do, and sends the result to the page's server.
const browserPage = `<!DOCTYPE html><script>
	const sizes = '%s'.split(' '), text = n => 'ab'.repeat(n / 2 + 1).slice(0, n)
	const socket = new WebSocket(location.href.replace('http', 'ws').replace('page', 'socket'))
	let at = 0
	const next = () => at < sizes.length ? socket.send(text(+sizes[at])) : socket.close(4000, 'enough')
	socket.onopen = next
	socket.onmessage = m => {
		if (m.data !== text(+sizes[at])) return socket.close(4001)
		at++
		next()
	}
	socket.onclose = e => fetch('result?' + e.code + ' ' + at)
</script>`

var browserResults = make(chan string, 1)

// chromiumClient has Chromium open a page, whose script is the client.
func chromiumClient(t *testing.T, url string) error {
	profile, err := os.MkdirTemp("", "browser")
	if err != nil {
		return err
	}
	defer await.Until(t, "the profile is removed", func() bool { return os.RemoveAll(profile) == nil })
	ctx, cancel := context.WithTimeout(t.Context(), conntest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--ignore-certificate-errors",
		"--user-data-dir="+profile, "--remote-debugging-port=0", strings.Replace(url, "ws", "http", 1)+"/page")
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		return err
	}
	result := ""
	select {
	case result = <-browserResults:
	case <-ctx.Done():
	}
	cmd.Process.Signal(os.Interrupt)
	err = cmd.Wait()
	if want := fmt.Sprintf("4000%%20%d", len(echoSizes)); result != want {
		return fmt.Errorf("%q, want %q; %v: %s", result, want, err, out.String())
	}
	return nil
}

// Clients of other libraries get their messages and the code of the end: gorilla/websocket,
// coder/websocket, Debian's package node-ws, and Chromium.
func TestClients(t *testing.T) {
	clients := map[string]func(*testing.T, string) error{
		"gorilla": func(_ *testing.T, url string) error { return gorillaClient(url) },
		"coder":   func(_ *testing.T, url string) error { return coderClient(url) },
	}
	if exec.Command("node", "-e", "require('/usr/share/nodejs/ws')").Run() == nil {
		clients["ws"] = func(_ *testing.T, url string) error { return nodeWSClient(url) }
	} else {
		t.Log("node-ws is not installed")
	}
	if _, err := exec.LookPath("chromium"); err == nil {
		clients["chromium"] = chromiumClient
	} else {
		t.Log("Chromium is not installed")
	}
	echo := newEcho(t)
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.secure, withBackend(c.text, echo), c.servers)
			url := map[bool]string{false: "ws://", true: "wss://"}[c.secure] + s.address
			before := tunnels.Stats().Accepted
			for name, client := range clients {
				if err := client(t, url); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if n := tunnels.Stats().Accepted - before; n != uint64(len(clients)) {
				t.Errorf("%d tunnels for %d clients", n, len(clients))
			}
		})
	}
}

// A client of WebSocket learns of a reload by the code.
func TestGorillaGoingAway(t *testing.T) {
	text := "$SITE {\npark_upgrades\nreverse_proxy " + newEcho(t) + " {\nstream_timeout %dh\n}\n}"
	s := newSite(t, false, fmt.Sprintf(text, 1))
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+s.address, nil)
	check.OK(t, err)
	defer conn.Close()
	check.OK(t, conn.WriteMessage(websocket.TextMessage, []byte("hello")))
	_, _, err = conn.ReadMessage()
	check.OK(t, err)
	resting(t, 1)
	s.load(fmt.Sprintf(text, 2))
	if _, _, err = conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Error(err)
	}
}

// A WebSocket over HTTP/2 is copied by Caddy, and counted.
func TestHTTP2(t *testing.T) {
	const debug = "http2xconnect=1" // net/http reads it when the process begins
	if !strings.Contains(os.Getenv("GODEBUG"), debug) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHTTP2$")
		cmd.Env = append(os.Environ(), "GODEBUG="+debug)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	b := newBackend(t)
	s := newSite(t, true, "$SITE {\npark_upgrades\nreverse_proxy "+b.address+"\n}")
	before := tunnels.Stats()
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
	check.OK(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(conntest.Timeout))
	io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	check.OK(t, framer.WriteSettings())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "https"}, {":path", "/"},
		{":authority", s.address}, {"sec-websocket-version", "13"}} {
		encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	check.OK(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	for server, got := (*peer)(nil), ""; got != "answer"; {
		frame, err := framer.ReadFrame()
		check.OK(t, err)
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := f.PseudoValue("status"); status != "200" {
				t.Fatal(status)
			}
			check.OK(t, framer.WriteData(1, false, []byte("question")))
			server = await.Value(t, b.accepted)
			conntest.Expect(t, server, "question")
			conntest.Send(t, server, "answer")
		case *http2.DataFrame:
			got += string(f.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			t.Fatal(f)
		}
	}
	if st := tunnels.Stats(); st.Copied != before.Copied+1 || st.Accepted != before.Accepted {
		t.Errorf("%+v", st)
	}
}

// The Caddyfile of docs/caddy.md works.
func TestDocumentedCaddyfile(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "caddy.md"))
	check.OK(t, err)
	_, text, _ := strings.Cut(string(page), "```text\n")
	text, _, found := strings.Cut(text, "```")
	if !found || !strings.HasPrefix(text, "example.com {") {
		t.Fatalf("docs/caddy.md does not begin with a Caddyfile: %s", text)
	}
	echo := newEcho(t)
	text = strings.Replace(text, "example.com {", "$SITE {", 1)
	text = regexp.MustCompile(`(app|other):[0-9]+`).ReplaceAllString(text, echo)
	s := newSite(t, true, text)
	before := tunnels.Stats().Accepted
	check.OK(t, gorillaClient("wss://"+s.address+"/socket"))
	if tunnels.Stats().Accepted != before+1 {
		t.Error("no tunnel")
	}
}
