package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the wait for anything that must happen.
const soon = 60 * time.Second

// A running is a site that a test has started.
type running struct {
	*site
	addr  string
	ended chan error
}

func start(t *testing.T, addr string, ping time.Duration) *running {
	t.Helper()
	s, err := newSite(ping)
	must(t, err)
	l, err := net.Listen("tcp", addr)
	must(t, err)
	r := &running{s, l.Addr().String(), make(chan error, 1)}
	go func() { r.ended <- s.serve(l) }()
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := r.close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-r.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: %v", err)
	}
	if s := r.hub.lot.Stats(); s.Parked != 0 || s.Running != 0 {
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
	for end := time.Now().Add(soon); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
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
	g.hear(func(e event) bool { return e.You != "" })
	g.hear(func(e event) bool { return e.Here > 0 })
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
func (g *guest) hear(fits func(event) bool) event {
	g.Helper()
	for {
		text, err := wsutil.ReadServerText(quiet{g, io.Discard})
		must(g, err)
		var e event
		must(g, json.Unmarshal(text, &e))
		if fits(e) {
			return e
		}
	}
}

func (g *guest) hearText(text string) event {
	g.Helper()
	return g.hear(func(e event) bool { return e.Text == text })
}

func (r *running) parked(n int) func() bool {
	return func() bool { return r.hub.stats().Parked == n }
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
	guests[1].hear(func(e event) bool { return e.Here == len(guests)-1 })
	until(t, "one has left", r.parked(len(guests)-1))
}

// A message in pieces, and several in one.
func TestFrames(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	g := visit(t, r.addr)
	var all bytes.Buffer
	must(t, wsutil.WriteClientText(&all, []byte("one")))
	must(t, wsutil.WriteClientMessage(&all, ws.OpPing, []byte("are you there?")))
	must(t, wsutil.WriteClientText(&all, []byte(strings.Repeat("two", 1000))))
	must(t, ws.WriteFrame(&all, ws.MaskFrame(ws.NewFrame(ws.OpText, false, []byte("thr")))))
	must(t, wsutil.WriteClientMessage(&all, ws.OpPing, []byte("between")))
	must(t, ws.WriteFrame(&all, ws.MaskFrame(ws.NewFrame(ws.OpContinuation, true, []byte("ee")))))
	for _, size := range []int{all.Len(), 1000, 3} {
		until(t, "parked", r.parked(1))
		for b := all.Bytes(); len(b) > 0; b = b[min(size, len(b)):] {
			_, err := g.Conn.Write(b[:min(size, len(b))])
			must(t, err)
		}
		var got []string
		for len(got) < 3 {
			got = append(got, g.hear(func(e event) bool { return e.From != "" }).Text)
		}
		if got[0] != "one" || len(got[1]) != 3000 || got[2] != "three" {
			t.Errorf("in pieces of %d: %.100q", size, got)
		}
	}
}

// Frames that arrive together with the request are in the buffer of net/http.
func TestEarlyFrames(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	conn, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(soon))
	var all bytes.Buffer
	all.WriteString("GET /chat HTTP/1.1\r\nHost: " + r.addr + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	must(t, wsutil.WriteClientText(&all, []byte("early")))
	must(t, wsutil.WriteClientText(&all, []byte("bird")))
	_, err = conn.Write(all.Bytes()[:all.Len()-3])
	must(t, err)
	_, err = conn.Write(all.Bytes()[all.Len()-3:])
	must(t, err)
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	must(t, err)
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer.Status)
	}
	g := &guest{t, conn, in}
	g.hearText("early")
	g.hearText("bird")
	until(t, "parked", r.parked(1))
	g.say("late")
	g.hearText("late")
}

func TestCloseFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		send ws.Frame
		want ws.StatusCode
	}{
		{"binary", ws.NewBinaryFrame([]byte("x")), ws.StatusUnsupportedData},
		{"too large", ws.NewTextFrame(make([]byte, maxMessage+1)), ws.StatusMessageTooBig},
		{"not UTF-8", ws.NewTextFrame([]byte{0xff}), ws.StatusInvalidFramePayloadData},
		{"reserved bits", ws.Frame{Header: ws.Header{Fin: true, Rsv: 7, OpCode: ws.OpText}}, ws.StatusProtocolError},
		{"closed", ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, "bye")), ws.StatusNormalClosure},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, "127.0.0.1:0", 0)
			defer r.stop(t)
			g := visit(t, r.addr)
			f := ws.MaskFrame(c.send)
			if c.want == ws.StatusMessageTooBig {
				f.Payload = nil // unread bytes would cause a reset
			}
			must(t, ws.WriteFrame(g, f))
			_, err := wsutil.ReadServerText(g)
			var closed wsutil.ClosedError
			if !errors.As(err, &closed) || closed.Code != c.want {
				t.Errorf("%v; want %d", err, c.want)
			}
			until(t, "all members have left", func() bool { return r.hub.stats().Members == 0 })
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
	if _, err := io.Copy(io.Discard, silent.in); err != nil {
		t.Fatal(err)
	}
	alive.say("still here")
	alive.hearText("still here")
}

func TestOrigin(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	for origin, want := range map[string]bool{"http://" + r.addr: true, "http://example.com": false, "null": false, "%": false} {
		d := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"Origin": {origin}}}
		conn, _, _, err := d.Dial(t.Context(), "ws://"+r.addr+"/chat")
		if (err == nil) != want {
			t.Errorf("%s: %v", origin, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

// A member that does not read is closed, and no other waits for it.
func TestSlowReader(t *testing.T) {
	r := start(t, "127.0.0.1:0", 0)
	defer r.stop(t)
	slow, g := visit(t, r.addr), visit(t, r.addr)
	slow.Conn.(*net.TCPConn).SetReadBuffer(4096)
	text := strings.Repeat("x", maxMessage)
	for n := 0; ; n++ {
		g.say(text)
		if g.hearText(text); r.hub.stats().Members == 1 {
			break
		}
		if n > 10_000 {
			t.Fatal("timed out waiting for the member to leave")
		}
	}
}
