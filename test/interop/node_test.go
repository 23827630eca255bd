package interop

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/websocket"
)

// nodeClient speaks two WebSockets and makes a request on one connection of Node.js's HTTP/2
// client.
const nodeClient = `
	import http2 from 'node:http2'
	const [url] = process.argv.slice(-1)
	const session = http2.connect(url, { rejectUnauthorized: false })
	const fail = e => { console.log('failed', e); process.exit(1) }
	session.on('error', fail)
	const settings = await new Promise(r => session.on('remoteSettings', r))
	if (!settings.enableConnectProtocol) fail('the extension is not announced')
	const mask = [1, 2, 3, 4]
	const frame = (op, payload) => Buffer.from(
		[0x80 | op, 0x80 | payload.length, ...mask, ...payload.map((b, i) => b ^ mask[i % 4])])
	const open = () => new Promise(r => {
		const s = session.request({ ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/chat',
			'sec-websocket-version': '13', 'origin': url })
		s.on('error', fail)
		s.on('response', h => r([s, h[':status']]))
	})
	const talk = async text => {
		const [s, status] = await open()
		let got = Buffer.alloc(0)
		s.on('data', b => {
			got = Buffer.concat([got, b])
			if (got.length === 2 + text.length) s.write(frame(8, Buffer.from([3, 232]))) // 1000
		})
		for (const b of frame(1, Buffer.from(text))) s.write(Buffer.from([b]))
		await new Promise(r => s.on('end', r))
		s.end()
		const code = got.at(-2) * 256 + got.at(-1)
		return [status, got.toString('latin1', 2, 2 + text.length), code].join(' ')
	}
	const answers = await Promise.all([talk('hello'), talk('again'), new Promise(r => {
		const s = session.request({ ':path': '/' })
		let text = ''
		s.on('data', b => { text += b })
		s.on('end', () => r(text))
	})])
	console.log(answers.join(', '))
	session.close()
`

// runNode runs a module, and returns what it has printed. It skips the test without Node.js.
func runNode(t *testing.T, script string, args ...string) (string, error) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, node, append([]string{"--input-type=module", "-"}, args...)...)
	c.Stdin = strings.NewReader(script)
	out, err := c.CombinedOutput()
	return string(out), err
}

// WebSockets over HTTP/2 are understood by another implementation of RFC 8441, that of Node.js.
func TestNodeWebSockets(t *testing.T) {
	cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
	must(t, err)
	echo := func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
		return c.Write(kind, payload)
	}
	chat := &websocket.Server{OnMessage: echo}
	mux := http.NewServeMux()
	mux.Handle("/chat", chat)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(r.Proto))
	})
	hs := &http.Server{Handler: mux}
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	server := &park.HTTPServer{HTTP2: &http2.Server{ExtendedConnect: true}, Linger: -1, Server: hs}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error)
	go func() { served <- server.ServeTLS(ln, "", "") }()
	defer func() {
		server.Close()
		<-served
		must(t, chat.Shutdown(context.Background()))
	}()
	url := "https://" + ln.Addr().String()
	out, err := runNode(t, nodeClient, url)
	if want := "200 hello 1000, 200 again 1000, HTTP/2.0\n"; err != nil || out != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}
