package interop

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// WebSockets of gorilla and of coder pass through a proxy whose upgraded connections are tunnels:
// small and large messages, a ping, and the codes of the close handshake from either side.
func TestProxiedWebSockets(t *testing.T) {
	upgrader := websocket.Upgrader{}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/coder" {
			echoCoder(w, r)
			return
		}
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
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	var tunnels park.Tunnels
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := &park.HTTPServer{Server: &http.Server{Handler: tunnels.ReverseProxy(proxy)}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	for i, path := range []string{"/gorilla", "/coder"} {
		address := "ws://" + l.Addr().String() + path
		t.Run("gorilla to "+path, func(t *testing.T) { askGorilla(t, address, &tunnels) })
		t.Run("coder to "+path, func(t *testing.T) { askCoder(t, address) })
		await.Until(t, "the tunnels have ended", func() bool { return tunnels.Stats().Conns == 0 })
		if st := tunnels.Stats(); st.Accepted != uint64(2*i+2) || st.Copied != 0 || st.Unparkable != 0 {
			t.Errorf("%+v", st)
		}
	}
	if err := tunnels.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

var large = bytes.Repeat([]byte("large"), 200_000)

func askGorilla(t *testing.T, address string, tunnels *park.Tunnels) {
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
