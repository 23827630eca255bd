package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/websocket"
)

// masked returns a frame of a WebSocket's client, with a mask of zeros.
func masked(op byte, payload string) []byte {
	n := len(payload)
	b := []byte{0x80 | op, 0x80 | byte(min(n, 126))}
	if n >= 126 {
		b = append(b, byte(n>>8), byte(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// The operation codes of RFC 6455.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// got describes a short frame of the server in a DATA frame of its own.
func got(stream uint32, op byte, payload string) string {
	head := string([]byte{0x80 | op, byte(len(payload))})
	return fmt.Sprintf("%d data %q end false", stream, head+payload)
}

// A chat is a server of WebSockets. Its default is to answer each message with the same.
type chat struct {
	*websocket.Server
	http2  *Server
	closed chan error
	conns  chan *websocket.Conn
	url    string
}

func serveSockets(t testing.TB, sockets *websocket.Server, secure bool) *chat {
	return serveSocketsWith(t, sockets, new(http.Server), secure)
}

func serveSocketsWith(t testing.TB, sockets *websocket.Server, hs *http.Server, secure bool) *chat {
	x := &chat{Server: sockets, closed: make(chan error, 100_000)}
	x.conns = make(chan *websocket.Conn, 100_000)
	if sockets.OnMessage == nil {
		sockets.OnMessage = func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
			return c.Write(kind, payload)
		}
	}
	sockets.OnOpen = func(c *websocket.Conn, _ *http.Request) error {
		x.conns <- c
		return nil
	}
	sockets.OnClose = func(_ *websocket.Conn, err error) { x.closed <- err }
	hs.Handler = sockets
	x.http2 = &Server{ExtendedConnect: true, Linger: -1, Server: hs}
	x.url = serve(t, x.http2, secure)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		must(t, sockets.Shutdown(ctx))
		if st := sockets.Stats(); st.Conns != 0 || st.Parked != 0 || st.QueuedBytes != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	return x
}

// open opens a WebSocket.
func (x *chat) open(t testing.TB, p *peer, stream uint32) *websocket.Conn {
	t.Helper()
	p.extended(stream, "/", "sec-websocket-version", "13")
	must(t, p.send())
	p.want(fmt.Sprint(stream, " status 200"))
	return await.Receive(t, "OnOpen", x.conns)
}

// say sends a frame.
func (p *peer) say(stream uint32, op byte, payload string) {
	p.t.Helper()
	p.WriteData(stream, false, masked(op, payload))
	must(p.t, p.send())
}

func (x *chat) waits(t testing.TB, sockets, conns int) {
	t.Helper()
	until(t, "everything is parked", func() bool {
		return x.Stats().Parked == sockets && x.http2.Stats().Parked == conns
	})
}

// ends waits for OnClose, which must get a CloseError with the code.
func (x *chat) ends(t testing.TB, code websocket.Code) {
	t.Helper()
	err := await.Receive(t, "OnClose", x.closed)
	var e *websocket.CloseError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("OnClose got %v, want the code %d", err, code)
	}
}

// wasReset waits for OnClose, which must get the error of a reset with the code.
func (x *chat) wasReset(t testing.TB, code http2.ErrCode) {
	t.Helper()
	err := await.Receive(t, "OnClose", x.closed)
	var e http2.StreamError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("OnClose got %v, want the code %v", err, code)
	}
}

// A WebSocket needs no goroutine over HTTP/2: it and its connection are parked. Messages in any
// pieces, pings and broadcasts come and go.
func TestWebSockets(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		x := serveSockets(t, new(websocket.Server), secure)
		p := dial(t, x.url)
		const sockets = 100
		first := x.open(t, p, 1)
		x.waits(t, 1, 1)
		before := runtime.NumGoroutine()
		for i := range sockets - 1 {
			x.open(t, p, id(i+1))
		}
		x.waits(t, sockets, 1)
		until(t, "there are no more goroutines than before", func() bool {
			return runtime.NumGoroutine() <= before+8
		})
		for i := range 10 {
			text := fmt.Sprint("message ", i)
			p.say(id(i), opText, text)
			p.want(got(id(i), opText, text))
			x.waits(t, sockets, 1)
		}
		for _, b := range append(masked(opText, "in pieces"), masked(opPing, "ping")...) {
			x.waits(t, sockets, 1)
			p.WriteDataPadded(1, false, []byte{b}, make([]byte, 3))
			must(t, p.send())
		}
		p.want(got(1, opText, "in pieces"), got(1, opPong, "ping"))
		all, err := x.Prepare(websocket.Text, []byte("to all"))
		must(t, err)
		if n := x.Broadcast(all); n != sockets {
			t.Errorf("sent to %d", n)
		}
		seen := make(map[string]bool)
		for range sockets {
			seen[p.next()] = true
		}
		for i := range sockets {
			if !seen[got(id(i), opText, "to all")] {
				t.Errorf("stream %d did not get the broadcast", id(i))
			}
		}
		if got, want := first.RemoteAddr().String(), p.conn.LocalAddr().String(); got != want {
			t.Errorf("the address is %s, want %s", got, want)
		}
		x.waits(t, sockets, 1)
		p.conn.Close()
		for range sockets {
			x.ends(t, websocket.CodeAbnormal)
		}
	})
}

// A WebSocket ends in each way, and the connection stays.
func TestWebSocketEnds(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		x := serveSockets(t, &websocket.Server{CloseTimeout: 50 * time.Millisecond}, secure)
		p := dial(t, x.url)
		end := func(stream uint32) {
			p.WriteData(stream, true, nil)
			must(t, p.send())
		}
		const bye = "\x03\xe8bye" // 1000

		x.open(t, p, 1) // the client says goodbye
		p.say(1, opClose, bye)
		p.want(got(1, opClose, bye), `1 data "" end true`)
		end(1)
		x.ends(t, websocket.CodeNormal)

		x.open(t, p, 3).Close(websocket.CodeGoingAway, "x") // the server does
		p.want(got(3, opClose, "\x03\xe9x"))
		p.say(3, opClose, "\x03\xe9")
		p.want(`3 data "" end true`)
		end(3)
		x.ends(t, websocket.CodeGoingAway)

		x.open(t, p, 5).Close(websocket.CodeGoingAway, "x") // and the client does not answer
		p.want(got(5, opClose, "\x03\xe9x"), `5 data "" end true`, "5 reset NO_ERROR")
		x.ends(t, websocket.CodeGoingAway)

		x.open(t, p, 7) // the client ends its side
		p.WriteData(7, true, masked(opText, "last"))
		must(t, p.send())
		p.want(got(7, opText, "last"), `7 data "" end true`)
		x.ends(t, websocket.CodeAbnormal)

		x.open(t, p, 9) // the client resets
		p.WriteRSTStream(9, http2.ErrCodeCancel)
		must(t, p.send())
		x.ends(t, websocket.CodeAbnormal)

		x.open(t, p, 11)
		p.WriteRSTStream(11, http2.ErrCodeInternal)
		must(t, p.send())
		x.wasReset(t, http2.ErrCodeInternal)

		must(t, x.open(t, p, 13).Abort()) // the server does
		p.want("13 reset CANCEL")
		if err := await.Receive(t, "OnClose", x.closed); err != websocket.ErrClosed {
			t.Errorf("OnClose got %v", err)
		}

		x.open(t, p, 15) // trailers are not permitted
		p.openPart(15, true, true, "a", "b")
		must(t, p.send())
		p.want("15 reset PROTOCOL_ERROR")
		x.wasReset(t, http2.ErrCodeProtocol)

		x.open(t, p, 17) // a frame that RFC 6455 forbids
		p.say(17, 3, "")
		if f := p.next(); !strings.HasPrefix(f, `17 data "\x88`) {
			t.Errorf("got %s", f)
		}
		p.want(`17 data "" end true`)
		end(17)
		x.ends(t, websocket.CodeProtocolError)
	})
}

// Timeouts, pings and Shutdown are as on a connection of its own.
func TestWebSocketTimers(t *testing.T) {
	x := serveSockets(t, &websocket.Server{
		PingInterval: 10 * time.Millisecond, PongTimeout: time.Minute}, false)
	p := dial(t, x.url)
	x.open(t, p, 1)
	for range 3 {
		p.want(got(1, opPing, ""))
		p.say(1, opPong, "")
	}
	ended := make(chan error)
	go func() { ended <- x.Shutdown(context.Background()) }()
	for f := ""; !strings.Contains(f, "the server ends"); f = p.next() {
		if f == "the end" {
			t.Fatal(f)
		}
	}
	p.WriteData(1, true, masked(opClose, "\x03\xe9"))
	must(t, p.send())
	p.want(`1 data "" end true`)
	must(t, <-ended)
	x.ends(t, websocket.CodeGoingAway)
	p.extended(3, "/", "sec-websocket-version", "13")
	must(t, p.send())
	p.want("3 status 503")

	x = serveSockets(t, &websocket.Server{
		PingInterval: time.Millisecond, PongTimeout: 10 * time.Millisecond}, false)
	p = dial(t, x.url)
	x.open(t, p, 1)
	p.want(got(1, opPing, ""), "1 reset CANCEL")
	if err := await.Receive(t, "OnClose", x.closed); err != websocket.ErrIdle {
		t.Errorf("OnClose got %v", err)
	}
}

// A request is refused as over HTTP/1.1, and the answer to one that is not has what was agreed on.
func TestWebSocketHandshake(t *testing.T) {
	x := serveSockets(t, &websocket.Server{
		Subprotocols: []string{"b", "a"}, Compression: 1, MaxConns: 1}, false)
	p := dial(t, x.url)
	stream := uint32(1)
	ask := func(end bool, fields ...string) map[string]string {
		t.Helper()
		p.openPart(stream, end, true, fields...)
		must(t, p.send())
		stream += 2
		for {
			f, err := p.ReadFrame()
			must(t, err)
			if h, ok := f.(*http2.MetaHeadersFrame); ok {
				header := make(map[string]string)
				for _, field := range h.Fields {
					header[field.Name] = field.Value
				}
				return header
			}
		}
	}
	right := []string{":method", "CONNECT", ":protocol", "websocket",
		":scheme", "https", ":authority", "x:1", ":path", "/",
		"sec-websocket-version", "13", "origin", "https://x:1"}
	with := func(name, value string) []string {
		fields := slices.Clone(right)
		fields[slices.Index(fields, name)+1] = value
		return fields
	}
	for _, c := range []struct {
		status string
		end    bool
		fields []string
	}{
		{"403", false, with("origin", "https://y")},
		{"403", false, with("origin", "https://x")},
		{"400", false, with("sec-websocket-version", "12")},
		{"501", false, with(":protocol", "connect-udp")},
		{"400", true, right},
		{"400", false, append(slices.Clone(right), "content-length", "10")},
		{"505", true, []string{":method", "GET", ":scheme", "https", ":authority", "x:1", ":path", "/"}},
		{"505", false, []string{":method", "CONNECT", ":authority", "x:1"}},
	} {
		if got := ask(c.end, c.fields...)[":status"]; got != c.status {
			t.Errorf("%q, end %t: status %s, want %s", c.fields, c.end, got, c.status)
		}
	}
	if n := x.Stats().Rejected; n != 8 {
		t.Errorf("%d were rejected", n)
	}
	more := append(slices.Clone(right), "sec-websocket-protocol", "a, b",
		"sec-websocket-extensions", "permessage-deflate",
		"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==") // that of RFC 6455
	answer := ask(false, more...)
	for name, want := range map[string]string{
		":status": "200", "sec-websocket-protocol": "b",
		"sec-websocket-extensions": "permessage-deflate; " +
			"server_no_context_takeover; client_no_context_takeover",
		"sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "content-length": "", "content-type": "",
	} {
		if answer[name] != want {
			t.Errorf("%s: %q, want %q", name, answer[name], want)
		}
	}
	answer = ask(false, more...)
	if answer[":status"] != "503" || answer["sec-websocket-protocol"] != "" {
		t.Errorf("beyond MaxConns: %q", answer)
	}
}

// What the windows do not permit is queued, and sent when they open, by whatever steps. A client
// that lets too much be queued is closed. The client's own window opens when its messages were
// read.
func TestWebSocketWindows(t *testing.T) {
	x := serveSockets(t, &websocket.Server{MaxQueued: 10 << 10}, false)
	p := dial(t, x.url)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	c := x.open(t, p, 1)
	p.say(1, opText, "abc")
	p.want(`1 data "\x81\x03a" end false`)
	for _, b := range "bc" {
		x.waits(t, 1, 1)
		p.WriteWindowUpdate(1, 1)
		must(t, p.send())
		p.want(fmt.Sprintf("1 data %q end false", string(b)))
	}
	for c.Write(websocket.Text, []byte(strings.Repeat("z", 1000))) == nil {
	}
	p.want("1 reset CANCEL")
	if err := await.Receive(t, "OnClose", x.closed); err != websocket.ErrSlow {
		t.Errorf("OnClose got %v", err)
	}

	// A client that has ended its side gets the rest.
	x.open(t, p, 3)
	p.WriteData(3, true, masked(opText, "abc"))
	must(t, p.send())
	p.want(`3 data "\x81\x03a" end false`)
	p.WriteWindowUpdate(3, 10)
	must(t, p.send())
	p.want(`3 data "bc" end false`, `3 data "" end true`)
	x.ends(t, websocket.CodeAbnormal)
}

// While a handler runs, what its client sends waits, at most a window.
func TestWebSocketInputWaits(t *testing.T) {
	proceed, texts := make(chan bool), make(chan string, 100)
	onMessage := func(_ *websocket.Conn, _ websocket.Kind, b []byte) error {
		<-proceed
		texts <- string(b)
		return nil
	}
	const window = 64 << 10
	hs := &http.Server{HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window}}
	x := serveSocketsWith(t, &websocket.Server{OnMessage: onMessage}, hs, false)
	p := dial(t, x.url)
	x.open(t, p, 1)
	message := masked(opText, strings.Repeat("m", window/4-8))
	for range 4 {
		p.WriteData(1, false, message)
	}
	opened := 0 // bytes by which the stream's window was opened
	read := func(until func(http2.Frame) bool) {
		for {
			f, err := p.ReadFrame()
			must(t, err)
			if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 1 {
				opened += int(u.Increment)
			}
			if until(f) {
				return
			}
		}
	}
	p.WritePing(false, [8]byte{})
	must(t, p.send())
	read(func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
	if opened >= window {
		t.Error("the whole window was opened while the handler ran")
	}
	for range 4 {
		proceed <- true
		if got := await.Receive(t, "the message", texts); len(got) != window/4-8 {
			t.Errorf("a message of %d bytes", len(got))
		}
	}
	read(func(http2.Frame) bool { return opened >= window/2 })

	x.open(t, p, 3)
	for range 5 {
		p.WriteData(3, false, message)
	}
	must(t, p.send())
	p.want("3 reset FLOW_CONTROL_ERROR")
	close(proceed) // the reset may have come before the handler of the first message
	x.wasReset(t, http2.ErrCodeFlowControl)
	p.conn.Close()
	x.ends(t, websocket.CodeAbnormal)
}

// A handler that returns an error, or panics, ends its WebSocket alone.
func TestWebSocketHandlerFails(t *testing.T) {
	onMessage := func(_ *websocket.Conn, _ websocket.Kind, b []byte) error {
		if string(b) == "panic" {
			panic("as asked")
		}
		return io.ErrUnexpectedEOF
	}
	x := serveSockets(t, &websocket.Server{OnMessage: onMessage}, false)
	p := dial(t, x.url)
	for i, text := range []string{"panic", "fail"} {
		x.open(t, p, id(i))
		p.say(id(i), opText, text)
		p.want(got(id(i), opClose, "\x03\xf3"))
		p.WriteData(id(i), true, masked(opClose, "\x03\xf3"))
		must(t, p.send())
		p.want(fmt.Sprint(id(i), ` data "" end true`))
		var failed *websocket.PanicError
		err := await.Receive(t, "OnClose", x.closed)
		if !errors.As(err, &failed) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("OnClose got %v", err)
		}
	}
	x.open(t, p, 5)
}
