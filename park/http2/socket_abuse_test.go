package http2

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/websocket"
)

// A client that opens WebSockets and resets them at once gets its places back.
func TestWebSocketRapidReset(t *testing.T) {
	x := serveSockets(t, new(websocket.Server), false)
	p := dial(t, x.url)
	go p.drain()
	for i := range 3000 {
		p.extended(id(i), "/", "sec-websocket-version", "13")
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
		if p.send() != nil {
			break // too many at once
		}
	}
	p.conn.Close()
	until(t, "all WebSockets have ended", func() bool { return x.Stats().Conns == 0 })
	until(t, "all connections have ended", func() bool { return x.http2.open() == 0 })
}

// A client with as many WebSockets as it may open that sends and reads nothing costs a bounded
// number of bytes. Its WebSockets end by WriteTimeout.
func TestWebSocketsNotRead(t *testing.T) {
	x := serveSockets(t, &websocket.Server{
		MaxQueued: 64 << 10, WriteTimeout: 200 * time.Millisecond, PingInterval: -1}, false)
	p := dial(t, x.url)
	for i := range defaultStreams {
		p.extended(id(i), "/", "sec-websocket-version", "13")
		p.WriteWindowUpdate(id(i), 1<<30)
		p.WriteData(id(i), false, masked(opPing, "and again")) // a pong is queued, too
	}
	p.WriteWindowUpdate(0, 1<<30)
	must(t, p.send())
	for range defaultStreams {
		await.Receive(t, "OnOpen", x.conns)
	}
	before := runtime.NumGoroutine()
	all, err := x.Prepare(websocket.Text, []byte(strings.Repeat("x", 8<<10)))
	must(t, err)
	for x.Stats().Conns > 0 {
		x.Broadcast(all)
		if n := x.Stats().QueuedBytes; n > defaultStreams*80<<10 {
			t.Fatalf("%d bytes are queued", n)
		}
		await.Pause(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+50 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	for range defaultStreams {
		if err := await.Receive(t, "OnClose", x.closed); err != websocket.ErrSlow {
			t.Errorf("OnClose got %v", err)
		}
	}
}

// A flood of a WebSocket's pings beside others is answered by the latest, or ends it by MaxPings,
// and the others go on.
func TestWebSocketPings(t *testing.T) {
	x := serveSockets(t, &websocket.Server{MaxPings: 100}, false)
	p := dial(t, x.url)
	x.open(t, p, 1)
	x.open(t, p, 3)
	for range 10_000 {
		p.WriteData(3, false, masked(opPing, ""))
	}
	must(t, p.send())
	for f := ""; !strings.HasPrefix(f, `3 data "\x88`); f = p.next() {
		if f == "the end" {
			t.Fatal(f)
		}
	}
	p.want(`3 data "" end true`)
	p.WriteData(3, true, nil)
	p.say(1, opText, "still here")
	p.want(got(1, opText, "still here"))
	x.ends(t, websocket.CodePolicy)
	p.conn.Close()
	x.ends(t, websocket.CodeAbnormal)
}
