package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/examples/websocket/chat"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// soon bounds the wait for anything that must happen.
const soon = 60 * time.Second

// A running is a site that a test has started.
type running struct {
	*chat.Site
	addr  string
	ended chan error
}

func start(t *testing.T, addr string, ping time.Duration) *running {
	t.Helper()
	s, err := chat.New(ping)
	must(t, err)
	l, err := net.Listen("tcp", addr)
	must(t, err)
	r := &running{s, l.Addr().String(), make(chan error, 1)}
	go func() { r.ended <- s.Serve(l) }()
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-r.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: %v", err)
	}
	if s := r.Hub.Stats(); s.Parked != 0 || s.Running != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}

// A guest is a client without a browser.
type guest struct {
	testing.TB
	net.Conn
	in io.Reader
}

func (g *guest) Read(p []byte) (int, error) { return g.in.Read(p) }

// visit connects and receives the first two events.
func visit(t testing.TB, addr string) *guest {
	t.Helper()
	conn, in, _, err := ws.Dial(t.Context(), "ws://"+addr+"/chat")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(soon))
	g := &guest{t, conn, conn}
	if in != nil {
		g.in = io.MultiReader(in, conn) // bytes that came with the response
	}
	g.hear(func(e chat.Event) bool { return e.You != "" })
	g.hear(func(e chat.Event) bool { return e.Here > 0 })
	return g
}

// quiet answers no pings.
type quiet struct {
	io.Reader
	io.Writer
}

func (g *guest) say(text string) {
	g.Helper()
	must(g, wsutil.WriteClientText(g, []byte(text)))
}

// hear discards events until one matches.
func (g *guest) hear(fits func(chat.Event) bool) chat.Event {
	g.Helper()
	for {
		text, err := wsutil.ReadServerText(quiet{g, io.Discard})
		must(g, err)
		var e chat.Event
		must(g, json.Unmarshal(text, &e))
		if fits(e) {
			return e
		}
	}
}

func (g *guest) hearText(text string) chat.Event {
	g.Helper()
	return g.hear(func(e chat.Event) bool { return e.Text == text })
}

func (r *running) parked(n int) func() bool {
	return func() bool { return r.Hub.Stats().Parked == n }
}

func TestEchoAndBroadcast(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	var guests []*guest
	for range 20 {
		guests = append(guests, visit(t, r.addr))
	}
	until(t, "all are parked", r.parked(len(guests)))
	guests[7].say("hello")
	for _, g := range guests {
		if e := g.hearText("hello"); e.From != "Guest 8" {
			t.Errorf("%+v", e)
		}
	}
	until(t, "all are parked again", r.parked(len(guests)))
	guests[0].Close()
	guests[1].hear(func(e chat.Event) bool { return e.Here == len(guests)-1 })
	until(t, "one has left", r.parked(len(guests)-1))
}

func TestCloseFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		send ws.Frame
		want ws.StatusCode
	}{
		{"binary", ws.NewBinaryFrame([]byte("x")), ws.StatusUnsupportedData},
		{"too large", ws.NewTextFrame(make([]byte, chat.MaxMessage+1)), ws.StatusMessageTooBig},
		{"closed", ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, "bye")), ws.StatusNormalClosure},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, "127.0.0.1:0", 0)
			defer r.stop(t)
			g := visit(t, r.addr)
			f := ws.MaskFrame(c.send)
			must(t, ws.WriteFrame(g, f))
			_, err := wsutil.ReadServerText(g)
			var closed wsutil.ClosedError
			if !errors.As(err, &closed) || closed.Code != c.want {
				t.Errorf("%v; want %d", err, c.want)
			}
			g.Close()
			until(t, "all members have left", func() bool { return r.Hub.Stats().Conns == 0 })
		})
	}
}

// A silent member is pinged, and closed if it does not answer.
func TestPing(t *testing.T) {
	r := start(t, "127.0.0.1:0", 2*time.Second)
	defer r.stop(t)
	silent, alive := visit(t, r.addr), visit(t, r.addr)
	for range 2 {
		for {
			m, err := wsutil.ReadServerMessage(alive, nil)
			must(t, err)
			if m[0].OpCode == ws.OpPing {
				must(t, wsutil.WriteClientMessage(alive, ws.OpPong, m[0].Payload))
				break
			}
		}
	}
	if _, err := io.Copy(io.Discard, silent.in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	alive.say("still here")
	alive.hearText("still here")
}

// A member that does not read is closed, and no other waits for it.
func TestSlowReader(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	slow, g := visit(t, r.addr), visit(t, r.addr)
	slow.Conn.(*net.TCPConn).SetReadBuffer(4096)
	text := strings.Repeat("x", chat.MaxMessage)
	for n := 0; ; n++ {
		g.say(text)
		if g.hearText(text); r.Hub.Stats().Conns == 1 {
			break
		}
		if n > 10_000 {
			t.Fatal("timed out waiting for the member to leave")
		}
	}
}
