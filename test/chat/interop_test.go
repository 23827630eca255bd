package chat_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/test/chromium"
	"github.com/socknotify/socknotify/test/nodejs"
	"github.com/socknotify/socknotify/websocket"
)

// The same echo server with gorilla/websocket and with package websocket.

func gorillaEcho(mux *http.ServeMux) {
	upgrader := gorilla.Upgrader{}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, payload, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, payload); err != nil {
				return
			}
		}
	})
}

func parkedEcho(mux *http.ServeMux) *websocket.Server {
	server := &websocket.Server{OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
		return c.Write(kind, payload)
	}}
	mux.Handle("/echo", server)
	return server
}

func coderEcho(mux *http.ServeMux) {
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		conn, err := coder.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			kind, text, err := conn.Read(r.Context())
			if err != nil || conn.Write(r.Context(), kind, text) != nil {
				return
			}
		}
	})
}

// Programs with the others' packages run on park.HTTPServer as they are.
func TestMigration(t *testing.T) {
	for name, install := range map[string]func(*http.ServeMux){
		"gorilla": gorillaEcho,
		"coder":   coderEcho,
		"parked": func(mux *http.ServeMux) {
			s := parkedEcho(mux)
			t.Cleanup(func() { must(t, s.Shutdown(context.Background())) })
		},
	} {
		for _, parked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, park %t", name, parked), func(t *testing.T) {
				mux := http.NewServeMux()
				install(mux)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				hs := &http.Server{Handler: mux}
				serve, closeServer := hs.Serve, hs.Close
				if parked {
					ps := &park.HTTPServer{Server: hs}
					serve, closeServer = ps.Serve, ps.Close
				}
				served := make(chan error, 1)
				go func() { served <- serve(l) }()
				defer func() {
					must(t, closeServer())
					await.Receive(t, "Serve", served)
				}()
				conn, _, err := gorilla.DefaultDialer.Dial("ws://"+l.Addr().String()+"/echo", nil)
				must(t, err)
				defer conn.Close()
				for _, text := range []string{"one", "two"} {
					must(t, conn.WriteMessage(gorilla.TextMessage, []byte(text)))
					_, got, err := conn.ReadMessage()
					must(t, err)
					if string(got) != text {
						t.Errorf("%q; want %q", got, text)
					}
				}
			})
		}
	}
}

// An echoServer echoes. A text "close 4001 reason" makes it close the connection.
type echoServer struct {
	*websocket.Server
	url   string
	ended chan error
}

// startEcho starts an echo server on net/http or on park.HTTPServer, which ends with the test.
func startEcho(t *testing.T, parked bool) *echoServer {
	t.Helper()
	e := &echoServer{ended: make(chan error, 100)}
	e.Server = &websocket.Server{
		Compression:  1,
		Subprotocols: []string{"echo"},
		CheckOrigin:  func(*http.Request) bool { return true },
		OnMessage: func(c *websocket.Conn, kind websocket.Kind, b []byte) error {
			var code int
			var reason string
			if n, _ := fmt.Sscanf(string(b), "close %d %s", &code, &reason); n == 2 {
				return c.Close(websocket.Code(code), reason)
			}
			return c.Write(kind, b)
		},
		OnClose: func(_ *websocket.Conn, err error) { e.ended <- err },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e.url = "ws://" + l.Addr().String() + "/"
	hs := &http.Server{Handler: e.Server}
	served := make(chan error, 1)
	shutdown := hs.Shutdown
	if parked {
		ps := &park.HTTPServer{Server: hs}
		shutdown = ps.Shutdown
		go func() { served <- ps.Serve(l) }()
	} else {
		go func() { served <- hs.Serve(l) }()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		<-served
	})
	return e
}

func (e *echoServer) wantEnd(t *testing.T, code websocket.Code, reason string, remote bool) {
	t.Helper()
	var c *websocket.CloseError
	if err := <-e.ended; !errors.As(err, &c) || *c != (websocket.CloseError{Code: code, Reason: reason, Remote: remote}) {
		t.Errorf("ended with %v, want %d %q, remote %v", err, code, reason, remote)
	}
}

// messages have lengths of each form, and are compressed well, badly, or not at all.
func messages() []string {
	var all []string
	for _, n := range []int{0, 1, 125, 126, 511, 512, 65535, 65536, 300_000} {
		all = append(all, strings.Repeat("x", n), strings.Repeat("é𝄞z", n/7))
	}
	return all
}

func TestGorilla(t *testing.T) {
	for _, parked := range []bool{false, true} {
		for _, compressed := range []bool{false, true} {
			t.Run(fmt.Sprintf("parked=%v,compressed=%v", parked, compressed), func(t *testing.T) {
				e := startEcho(t, parked)
				dialer := gorilla.Dialer{EnableCompression: compressed, Subprotocols: []string{"other", "echo"}, WriteBufferSize: 1000}
				conn, answer, err := dialer.Dial(e.url, nil)
				must(t, err)
				defer conn.Close()
				must(t, conn.SetReadDeadline(time.Now().Add(soon)))
				if conn.Subprotocol() != "echo" || (answer.Header.Get("Sec-WebSocket-Extensions") != "") != compressed {
					t.Errorf("%v", answer.Header)
				}
				pongs := 0
				conn.SetPongHandler(func(text string) error {
					if text == "between" {
						pongs++
					}
					return nil
				})
				for i, text := range messages() {
					kind := gorilla.TextMessage + i%2
					w, err := conn.NextWriter(kind) // fragments of 1,000 bytes
					must(t, err)
					for b := []byte(text); len(b) > 0; b = b[min(3000, len(b)):] {
						_, err := w.Write(b[:min(3000, len(b))])
						must(t, err)
						must(t, conn.WriteControl(gorilla.PingMessage, []byte("between"), time.Now().Add(soon)))
					}
					must(t, w.Close())
					gotKind, got, err := conn.ReadMessage()
					must(t, err)
					if gotKind != kind || string(got) != text {
						t.Fatalf("%d bytes of kind %d, want %d of kind %d", len(got), gotKind, len(text), kind)
					}
				}
				if pongs == 0 {
					t.Error("no pong")
				}
				must(t, conn.WriteMessage(gorilla.TextMessage, []byte("close 4001 enough")))
				if _, _, err := conn.ReadMessage(); !gorilla.IsCloseError(err, 4001) {
					t.Error(err)
				}
				conn.Close()
				e.wantEnd(t, 4001, "enough", false)

				conn, _, err = dialer.Dial(e.url, nil)
				must(t, err)
				defer conn.Close()
				must(t, conn.SetReadDeadline(time.Now().Add(soon)))
				must(t, conn.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(4002, "bye")))
				if _, _, err := conn.ReadMessage(); !gorilla.IsCloseError(err, 4002) {
					t.Error(err)
				}
				conn.Close()
				e.wantEnd(t, 4002, "bye", true)
			})
		}
	}
}

func TestCoder(t *testing.T) {
	for _, parked := range []bool{false, true} {
		for _, mode := range []coder.CompressionMode{coder.CompressionDisabled, coder.CompressionContextTakeover, coder.CompressionNoContextTakeover} {
			t.Run(fmt.Sprintf("parked=%v,compression=%d", parked, mode), func(t *testing.T) {
				e := startEcho(t, parked)
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				options := &coder.DialOptions{CompressionMode: mode, Subprotocols: []string{"echo"}}
				conn, answer, err := coder.Dial(ctx, e.url, options)
				must(t, err)
				defer conn.CloseNow()
				conn.SetReadLimit(1 << 20)
				if conn.Subprotocol() != "echo" || (answer.Header.Get("Sec-WebSocket-Extensions") != "") != (mode != coder.CompressionDisabled) {
					t.Errorf("%v", answer.Header)
				}
				for i, text := range messages() {
					kind := coder.MessageText + coder.MessageType(i%2)
					must(t, conn.Write(ctx, kind, []byte(text)))
					gotKind, got, err := conn.Read(ctx)
					must(t, err)
					if gotKind != kind || string(got) != text {
						t.Fatalf("%d bytes of kind %d, want %d of kind %d", len(got), gotKind, len(text), kind)
					}
				}
				read := conn.CloseRead(ctx)
				must(t, conn.Ping(ctx))
				must(t, conn.Close(4002, "bye"))
				<-read.Done()
				e.wantEnd(t, 4002, "bye", true)

				conn, _, err = coder.Dial(ctx, e.url, options)
				must(t, err)
				defer conn.CloseNow()
				must(t, conn.Write(ctx, coder.MessageText, []byte("close 4001 enough")))
				if _, _, err := conn.Read(ctx); coder.CloseStatus(err) != 4001 {
					t.Error(err)
				}
				e.wantEnd(t, 4001, "enough", false)
			})
		}
	}
}

// A real browser sends messages, with compression, and closes.
func TestBrowserMessages(t *testing.T) {
	e := startEcho(t, true)
	b := newTab(t)
	chromium.Eval[any](b.Tab, fmt.Sprintf(`(() => {
		window.got = [];
		const sizes = [0, 1, 125, 126, 65535, 65536, 300000];
		const texts = sizes.map(n => "é𝄞z".repeat(n / 7));
		const socket = new WebSocket(%q, ["echo"]);
		socket.binaryType = "arraybuffer";
		socket.onopen = () => {
			got.push(socket.protocol, socket.extensions.split(";")[0]);
			for (const [i, text] of texts.entries()) {
				socket.send(text);
				socket.send(new Uint8Array(sizes[i]).fill(i));
			}
			socket.send("close 4001 enough");
		};
		let n = 0;
		socket.onmessage = (event) => {
			const i = n >> 1;
			const good = n %% 2 === 0 ? event.data === texts[i] :
				event.data.byteLength === sizes[i] && new Uint8Array(event.data).every(x => x === i);
			got.push(good);
			n++;
		};
		socket.onclose = (event) => got.push(n, event.code, event.reason, event.wasClean, "end");
	})(), null`, e.url))
	b.Until("the connection has ended", "got.at(-1) === 'end'")
	want := `["echo","permessage-deflate",` + strings.Repeat("true,", 14) + `14,4001,"enough",true,"end"]`
	if got := chromium.Eval[string](b.Tab, "JSON.stringify(got)"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	e.wantEnd(t, 4001, "enough", false)

	// The browser ends the connection, by a code and by leaving the page.
	chromium.Eval[any](b.Tab, fmt.Sprintf(`(() => {
		window.got = [];
		window.socket = new WebSocket(%q);
		socket.onopen = () => socket.close(4002, "bye");
		socket.onclose = (event) => got.push(event.code, event.reason, event.wasClean, "end");
	})(), null`, e.url))
	b.Until("the connection has ended", "got.at(-1) === 'end'")
	if got := chromium.Eval[string](b.Tab, "JSON.stringify(got)"); got != `[4002,"bye",true,"end"]` {
		t.Error(got)
	}
	e.wantEnd(t, 4002, "bye", true)
	chromium.Eval[any](b.Tab, fmt.Sprintf(`(() => { window.socket = new WebSocket(%q); })(), null`, e.url))
	b.Until("it is open", "socket.readyState === 1")
	until(t, "it is parked", func() bool { return e.Stats().Parked == 1 })
	chromium.Eval[any](b.Tab, "location.href = 'about:blank#', location.reload(), null")
	e.wantEnd(t, websocket.CodeGoingAway, "", true)
}

// nodeClient sends messages by the module ws, each of which is compressed, and prints how the
// connection ended.
const nodeClient = `
	const WebSocket = require('ws')
	const sizes = [0, 1, 125, 126, 511, 512, 65535, 65536, 300000]
	const texts = sizes.map(n => 'é𝄞z'.repeat(n / 7))
	const s = new WebSocket(process.argv[2], ['echo'], { perMessageDeflate: { threshold: 0 } })
	let n = 0
	s.on('open', () => {
		for (const [i, text] of texts.entries()) {
			const b = Buffer.from(text)
			s.send(b.subarray(0, b.length / 2), { binary: false, fin: false })
			s.ping('between')
			s.send(b.subarray(b.length / 2), { binary: false })
			s.send(Buffer.alloc(sizes[i], i))
		}
	})
	s.on('message', (b, binary) => {
		const i = n >> 1
		const want = n % 2 ? Buffer.alloc(sizes[i], i) : Buffer.from(texts[i])
		if (binary !== (n % 2 === 1) || !b.equals(want)) console.log('message', n)
		if (++n === 2 * sizes.length) s.close(4002, 'bye')
	})
	s.on('error', e => console.log(e))
	s.on('close', (code, reason) => console.log(s.extensions, n, code, String(reason)))
`

// Module ws of npm exchanges compressed messages and fragments.
func TestNodeMessages(t *testing.T) {
	node := nodejs.WithWS(t)
	for _, parked := range []bool{false, true} {
		e := startEcho(t, parked)
		out, err := node.Run(nodeClient, e.url)
		if want := "permessage-deflate 18 4002 bye\n"; err != nil || out != want {
			t.Errorf("parked %t: %v, %q, want %q", parked, err, out, want)
		}
		e.wantEnd(t, 4002, "bye", true)
	}
}
