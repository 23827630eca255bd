package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/chromedp/chromedp"
	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/test/chromium"
	"github.com/socknotify/socknotify/test/nodejs"
)

// serveProxy serves handler. At the end of the test nothing of the tunnels is left.
func serveProxy(t *testing.T, handler http.Handler, tunnels *tunnel.Tunnels) (address string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	hs := &http.Server{Handler: handler, Protocols: protocols}
	server := &park.HTTPServer{Server: hs, HTTP2: new(http2.Server)}
	l := listen(t)
	go server.Serve(l)
	t.Cleanup(func() {
		server.Close()
		await.Until(t, "the tunnels have ended", func() bool { return tunnels.Stats().Conns == 0 })
		must(t, tunnels.Shutdown(context.Background()))
	})
	return l.Addr().String()
}

// echoProxy starts a proxy whose upgraded connections are tunnels, in front of a server that echoes
// the messages of WebSockets, by the library that the path names. Otherwise the server has an empty
// page.
func echoProxy(t *testing.T) (address string, tunnels *tunnel.Tunnels) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/coder":
			echoCoder(w, r)
		case "/gorilla":
			echoGorilla(w, r)
		default:
			fmt.Fprint(w, `<!DOCTYPE html><link rel="icon" href="data:,">`)
		}
	}))
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	must(t, err)
	tunnels = new(tunnel.Tunnels)
	address = serveProxy(t, tunnels.ReverseProxy(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the server compares it with the origin
	}}), tunnels)
	return address, tunnels
}

// wantTunnels verifies that so many upgraded connections were joined, that all of them have ended,
// and that none was left to the proxy or had a goroutine.
func wantTunnels(t *testing.T, tunnels *tunnel.Tunnels, n uint64) {
	t.Helper()
	await.Until(t, "the tunnels have ended", func() bool { return tunnels.Stats().Conns == 0 })
	if st := tunnels.Stats(); st.Accepted != n || st.Copied != 0 || st.Unparkable != 0 || st.Panics != 0 {
		t.Errorf("%+v", st)
	}
}

// WebSockets of gorilla and of coder pass through a proxy whose upgraded connections are tunnels:
// small and large messages, a ping, and the codes of the close handshake from either side.
func TestProxiedWebSockets(t *testing.T) {
	address, tunnels := echoProxy(t)
	for i, path := range []string{"/gorilla", "/coder"} {
		url := "ws://" + address + path
		t.Run("gorilla to "+path, func(t *testing.T) { askGorilla(t, url, tunnels) })
		t.Run("coder to "+path, func(t *testing.T) { askCoder(t, url) })
		wantTunnels(t, tunnels, uint64(2*i+2))
	}
}

// exchangeScript has messages of each kind and length echoed, one at a time, then a hundred at
// once, and has the server close the connection. It runs in browsers and in Node.js. The result is
// a text.
const exchangeScript = `(WebSocket, url) => new Promise(done => {
	const sizes = [0, 1, 125, 126, 65535, 65536, 300000];
	const texts = sizes.map(n => "é𝄞z".repeat(n / 7));
	const socket = new WebSocket(url);
	socket.binaryType = "arraybuffer";
	const got = [];
	let n = 0;
	const next = () => {
		const i = n >> 1;
		if (n === 2 * sizes.length) {
			for (let k = 0; k < 100; k++) socket.send("at once " + k);
			socket.send("bye");
		} else if (n < 2 * sizes.length) {
			socket.send(n % 2 ? new Uint8Array(sizes[i]).fill(i) : texts[i]);
		}
	};
	socket.onopen = () => {
		got.push(socket.extensions.split(";")[0]);
		next();
	};
	socket.onmessage = event => {
		const i = n >> 1;
		const good = n >= 2 * sizes.length ? event.data === "at once " + (n - 2 * sizes.length) :
			n % 2 ? event.data.byteLength === sizes[i] && new Uint8Array(event.data).every(x => x === i) :
			event.data === texts[i];
		if (!good) got.push("message " + n);
		n++;
		next();
	};
	socket.onclose = event => {
		got.push(n, event.code, event.reason, event.wasClean);
		done(got.join());
	};
})`

const exchanged = "permessage-deflate,114,4001,bye,true"

// A browser's WebSocket passes through a proxy, on the page of the same proxy.
func TestProxiedChromium(t *testing.T) {
	b := chromium.Open(t, func(any) {}, 400, 400)
	address, tunnels := echoProxy(t)
	b.Do(chromedp.Navigate("http://" + address + "/"))
	got := chromium.Eval[string](b, fmt.Sprintf("(%s)(WebSocket, 'ws://' + location.host + '/gorilla')", exchangeScript))
	if got != exchanged {
		t.Errorf("%s, want %s", got, exchanged)
	}
	wantTunnels(t, tunnels, 1)
	// The browser ends the connection.
	chromium.Eval[any](b, "window.socket = new WebSocket('ws://' + location.host + '/gorilla'), null")
	b.Until("it is open", "socket.readyState === 1")
	await.Until(t, "the tunnel is parked", func() bool { return tunnels.Stats().Parked == 2 })
	chromium.Eval[any](b, "socket.close(4002, 'bye'), null")
	wantTunnels(t, tunnels, 2)
}

// Module ws of npm passes through a proxy.
func TestProxiedNode(t *testing.T) {
	node := nodejs.WithWS(t)
	address, tunnels := echoProxy(t)
	got, err := node.Run(fmt.Sprintf("(%s)(require('ws'), process.argv[2]).then(console.log)", exchangeScript),
		"ws://"+address+"/gorilla")
	if err != nil || got != exchanged+"\n" {
		t.Errorf("%v: %q, want %s", err, got, exchanged)
	}
	wantTunnels(t, tunnels, 1)
}

// gRPC's streams in both directions pass through a tunnel that CONNECT has made, and through the
// proxy as HTTP/2 on both sides, where each is a request that the tunnels have nothing to do with.
// A call that fails ends the process with a message, because package interop does that.
func TestProxiedGRPC(t *testing.T) {
	l := listen(t)
	service := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(service, interop.NewTestServer())
	go service.Serve(l)
	t.Cleanup(service.Stop)
	backend := l.Addr().String()

	t.Run("CONNECT", func(t *testing.T) {
		tunnels := new(tunnel.Tunnels)
		connect := &tunnel.ConnectProxy{Tunnels: tunnels, Ports: []int{l.Addr().(*net.TCPAddr).Port},
			Inside: []string{"127.0.0.1"}, Allow: func(*http.Request, netip.AddrPort) bool { return true }}
		proxy := serveProxy(t, connect, tunnels)
		callGRPC(t, backend, func() {
			await.Until(t, "the tunnel is parked", func() bool {
				st := tunnels.Stats()
				return st.Parked == 2 && st.Running == 0
			})
		}, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialConnect(ctx, proxy, address)
		}))
		wantTunnels(t, tunnels, 1)
	})
	t.Run("HTTP2", func(t *testing.T) {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(transport.CloseIdleConnections)
		tunnels := new(tunnel.Tunnels)
		proxy := serveProxy(t, tunnels.ReverseProxy(&httputil.ReverseProxy{Transport: transport,
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: backend}) }}), tunnels)
		callGRPC(t, proxy, func() {})
		wantTunnels(t, tunnels, 0)
	})
}

// callGRPC makes calls on one connection. between is called after each.
func callGRPC(t *testing.T, address string, between func(), options ...grpc.DialOption) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	must(t, err)
	tests := testgrpc.NewTestServiceClient(conn)
	for _, call := range []func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		interop.DoEmptyUnaryCall, interop.DoLargeUnaryCall, interop.DoClientStreaming,
		interop.DoServerStreaming, interop.DoPingPong, interop.DoEmptyStream,
		interop.DoTimeoutOnSleepingServer, interop.DoCancelAfterBegin,
		interop.DoCancelAfterFirstResponse, interop.DoCustomMetadata, interop.DoStatusCodeAndMessage,
	} {
		call(t.Context(), tests)
		between()
	}
	must(t, conn.Close())
}

// dialConnect connects to an address by CONNECT.
func dialConnect(ctx context.Context, proxy, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("CONNECT: %s", r.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &readAheadConn{conn, in}, nil
}

// A readAheadConn has bytes in its reader that were received with a head.
type readAheadConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *readAheadConn) Read(p []byte) (int, error) { return c.in.Read(p) }

var large = bytes.Repeat([]byte("large"), 200_000)

func askGorilla(t *testing.T, address string, tunnels *tunnel.Tunnels) {
	conn, _, err := websocket.DefaultDialer.Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	pong := make(chan string, 10)
	conn.SetPongHandler(func(text string) error { pong <- text; return nil })
	for _, b := range [][]byte{[]byte("small"), large, []byte("again")} {
		if err := conn.WriteMessage(websocket.BinaryMessage, b); err != nil {
			t.Fatal(err)
		}
		conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(time.Minute))
		if _, got, err := conn.ReadMessage(); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes, %v, want %d", len(got), err, len(b))
		}
		await.Until(t, "the tunnel is parked", func() bool { return tunnels.Stats().Running == 0 })
	}
	conn.WriteMessage(websocket.TextMessage, []byte("bye"))
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, 4001) {
		t.Errorf("%v", err)
	}
	if text := await.Receive(t, "a pong", pong); text != "ping" {
		t.Errorf("%q", text)
	}
}

func askCoder(t *testing.T, address string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := coder.Dial(ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	for _, b := range [][]byte{[]byte("small"), large, []byte("again")} {
		if err := conn.Write(ctx, coder.MessageBinary, b); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(ctx); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes, %v, want %d", len(got), err, len(b))
		}
	}
	if strings.HasSuffix(address, "coder") {
		if err := conn.Close(coder.StatusNormalClosure, "done"); err != nil {
			t.Error(err)
		}
		return
	}
	conn.Write(ctx, coder.MessageText, []byte("bye"))
	if _, _, err := conn.Read(ctx); coder.CloseStatus(err) != 4001 {
		t.Errorf("%v", err)
	}
}

func echoCoder(w http.ResponseWriter, r *http.Request) {
	conn, err := coder.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	for {
		kind, b, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if string(b) == "bye" {
			conn.Close(4001, "bye")
			return
		}
		conn.Write(r.Context(), kind, b)
	}
}

func echoGorilla(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{EnableCompression: true}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, b, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if string(b) == "bye" {
			bye := websocket.FormatCloseMessage(4001, "bye")
			conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Minute))
			conn.ReadMessage()
			return
		}
		conn.WriteMessage(kind, b)
	}
}
