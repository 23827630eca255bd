package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// each runs a test with every kind of host.
func each(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range hosts {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// A log collects what a Server logs.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// What a handler returns, a panic and runtime.Goexit end their connection alone.
func TestHandlerErrors(t *testing.T) {
	own := errors.New("own")
	each(t, func(t *testing.T, kind string) {
		e, l := make(ends, 10), new(log)
		h := serve(t, kind, &Server{OnClose: e.closed, Logger: l.logger(), TimeCalls: true, OnMessage: func(c *Conn, k Kind, b []byte) error {
			switch string(b) {
			case "code":
				return fmt.Errorf("wrapped: %w", &CloseError{Code: 4001, Reason: "so"})
			case "bad code":
				return &CloseError{Code: 1005}
			case "error":
				return own
			case "panic":
				panic("on purpose")
			case "exit":
				runtime.Goexit()
			}
			return echo(c, k, b)
		}})
		other := h.connect(t, "")
		for _, c := range []struct {
			say  string
			code Code
			is   error
		}{{"code", 4001, nil}, {"bad code", CodeInternalError, nil}, {"error", CodeInternalError, own}, {"panic", CodeInternalError, nil}} {
			p := h.connect(t, "")
			p.send(join(text(c.say), text("not delivered"))...)
			p.wantClose(c.code)
			p.send(closing(c.code, "")...)
			p.wantEnd()
			err := e.wait(t)
			var ce *CloseError
			switch {
			case c.is != nil:
				wantErr(t, err, c.is)
			case errors.As(err, &ce) != (c.say != "panic"):
				t.Errorf("%s: %v", c.say, err)
			case c.say == "panic" && !errors.As(err, new(*PanicError)):
				t.Errorf("%T", err)
			}
		}
		if st := h.server.Stats(); st.Panics != 1 || st.Calls != 4 || st.CallTime.Count() != 3 || st.Accepted != 5 {
			t.Errorf("%+v", st)
		}
		if s := l.String(); !strings.Contains(s, "on purpose") || !strings.Contains(s, "TestHandlerErrors") {
			t.Errorf("logged: %s", s)
		}
		if kind != "opaque" { // there the goroutine is the connection's own
			p := h.connect(t, "")
			p.send(text("exit")...)
			wantGoexit(t, e.wait(t))
		}
		other.send(text("alive")...)
		other.wantText("alive")
	})
}

func wantGoexit(t *testing.T, err error) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(err), "runtime.Goexit") {
		t.Errorf("%v, want runtime.Goexit", err)
	}
}

func TestHooks(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 10)
		pongs := make(chan string, 10)
		h := serve(t, kind, &Server{
			Subprotocols: []string{"b", "a"},
			OnClose:      e.closed,
			OnOpen: func(c *Conn, r *http.Request) error {
				c.Value = r.URL.Path
				switch r.Header.Get("X-Test") {
				case "refuse":
					return &CloseError{Code: CodePolicy, Reason: "not you"}
				case "panic":
					panic("on purpose")
				case "exit":
					runtime.Goexit()
				}
				must(t, c.Ping([]byte("are you there")))
				return c.Write(Text, []byte(c.Subprotocol()+" "+c.RemoteAddr().Network()))
			},
			OnPong: func(c *Conn, b []byte) { pongs <- string(b) },
			OnMessage: func(c *Conn, _ Kind, b []byte) error {
				return c.Write(Binary, []byte(c.Value.(string)))
			},
		})
		p := h.connect(t, "Sec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Protocol: c\r\n")
		if got := p.answer.Header.Get("Sec-WebSocket-Protocol"); got != "b" {
			t.Errorf("subprotocol %q", got)
		}
		p.want(ping, "are you there")
		p.wantText("b tcp")
		p.send(join(frame(pong, "yes"), text("?"))...)
		p.want(fin|byte(Binary), "/")
		if got := <-pongs; got != "yes" {
			t.Errorf("pong %q", got)
		}
		p.Close()
		wantCode(t, e.wait(t), CodeAbnormal, true)

		p = h.connect(t, "X-Test: refuse\r\n")
		p.wantClose(CodePolicy)
		p.send(closing(CodePolicy, "")...)
		p.wantEnd()
		wantCode(t, e.wait(t), CodePolicy, false)
		p = h.connect(t, "X-Test: panic\r\n")
		p.wantClose(CodeInternalError)
		p.Close()
		if err := e.wait(t); !strings.Contains(err.Error(), "on purpose") {
			t.Error(err)
		}
		p = h.connect(t, "X-Test: exit\r\n")
		wantGoexit(t, e.wait(t))
		p.wantEnd()
	})
}

// Either side ends the connection, or both at the same time.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 10)
		conns := make(chan *Conn, 10)
		got := make(chan string, 10)
		h := serve(t, kind, &Server{
			OnOpen:    func(c *Conn, _ *http.Request) error { conns <- c; return nil },
			OnMessage: func(_ *Conn, _ Kind, b []byte) error { got <- string(b); return nil },
			OnClose:   e.closed,
		})
		// By the server, from another goroutine, while the connection is parked.
		p := h.connect(t, "")
		c := <-conns
		wantErr(t, c.Close(1005, ""), socknotify.ErrInvalid)
		wantErr(t, c.Close(CodeNormal, "\xff"), socknotify.ErrInvalid)
		must(t, c.Close(4000, "bye "+strings.Repeat("é", 100)))
		wantErr(t, c.Close(4000, ""), ErrClosed)
		wantErr(t, c.Write(Text, nil), ErrClosed)
		wantErr(t, c.Ping(nil), net.ErrClosed)
		first, payload := p.next()
		if first != fin|opClose || payload != "\x0f\xa0bye "+strings.Repeat("é", 59) {
			t.Errorf("%#x %q", first, payload)
		}
		p.send(join(text("too late"), closing(4000, ""))...)
		p.wantEnd()
		wantCode(t, e.wait(t), 4000, false)
		wantErr(t, c.Write(Text, nil), ErrClosed)
		wantErr(t, c.Flush(t.Context()), ErrClosed)

		// By the client.
		p = h.connect(t, "")
		p.send(closing(CodeGoingAway, "page")...)
		p.wantClose(CodeGoingAway)
		p.wantEnd()
		wantCode(t, e.wait(t), CodeGoingAway, true)
		wantErr(t, (<-conns).Close(CodeNormal, ""), ErrClosed)

		// By both.
		p = h.connect(t, "")
		p.send(closing(4002, "")...)
		(<-conns).Close(4001, "")
		first, _ = p.next()
		if first != fin|opClose {
			t.Errorf("%#x", first)
		}
		p.wantEnd()
		var ce *CloseError
		if err := e.wait(t); !errors.As(err, &ce) || ce.Code != 4001 && ce.Code != 4002 {
			t.Error(err)
		}

		// By both, the server first, with a code that the client's answer does not repeat.
		p = h.connect(t, "")
		must(t, (<-conns).Close(4001, "ours"))
		p.send(closing(4002, "theirs")...)
		p.want(fin|opClose, "\x0f\xa1ours")
		p.wantEnd() // there is no second close frame, and no reset
		wantCode(t, e.wait(t), 4001, false)

		// Without a close frame.
		p = h.connect(t, "")
		c = <-conns
		must(t, c.Abort())
		wantErr(t, c.Abort(), ErrClosed)
		wantErr(t, e.wait(t), ErrClosed)
		if _, err := p.in.ReadByte(); err == nil {
			t.Error("still open")
		}
		select {
		case b := <-got:
			t.Errorf("delivered %q", b)
		case err := <-e:
			t.Errorf("OnClose is called once more, with %v", err)
		default:
		}
	})
}

// A peer that does not answer a close frame or a ping is closed, and so is one that sends no messages.
func TestTimeouts(t *testing.T) {
	t.Parallel() // it waits
	const short = 150 * time.Millisecond
	each(t, func(t *testing.T, kind string) {
		start := func(s *Server) (*host, ends) {
			e := make(ends, 10)
			s.OnMessage, s.OnClose = echo, e.closed
			return serve(t, kind, s), e
		}
		t.Run("close", func(t *testing.T) {
			h, e := start(&Server{CloseTimeout: short, OnOpen: func(c *Conn, _ *http.Request) error {
				go c.Close(4000, "")
				return nil
			}})
			p := h.connect(t, "")
			p.wantClose(4000)
			p.wantEnd()
			wantCode(t, e.wait(t), 4000, false)
		})
		t.Run("ping", func(t *testing.T) {
			h, e := start(&Server{PingInterval: short, PongTimeout: 2 * time.Second})
			alive := h.connect(t, "")
			for range 3 {
				alive.want(ping, "")
				alive.send(frame(pong, "")...)
			}
			ended := make(chan bool)
			go func() { // before the other connects, which may take longer than PongTimeout
				for f, _, err := alive.read(); err == nil; f, _, err = alive.read() {
					if f == ping {
						alive.Conn.Write(frame(pong, ""))
					}
				}
				close(ended)
			}()
			p := h.connect(t, "")
			p.want(ping, "")
			err := e.wait(t)
			wantErr(t, err, ErrIdle)
			wantErr(t, err, os.ErrDeadlineExceeded)
			until(t, "the peer that answers is alone", func() bool { return h.server.Stats().Conns == 1 }) // it is counted out after OnClose
			alive.Conn.Close()
			<-ended
		})
		t.Run("idle", func(t *testing.T) {
			var p *peer
			var e ends
			next := func() (first byte, payload string) { // after pings
				for first, payload = p.next(); first == ping; first, payload = p.next() {
					p.Conn.Write(frame(pong, ""))
				}
				return first, payload
			}
			for end := time.Now().Add(soon); ; { // until a message comes before IdleTimeout is over
				var h *host
				h, e = start(&Server{IdleTimeout: 2 * short, PingInterval: short, PongTimeout: 2 * time.Second})
				p = h.connect(t, "")
				p.Conn.Write(text("x"))
				if first, payload := next(); first == fin|byte(Text) && payload == "x" {
					break
				} else if first != fin|opClose || time.Now().After(end) {
					t.Fatalf("%#x %q", first, payload)
				}
				p.Close()
			}
			if first, _ := next(); first != fin|opClose {
				t.Errorf("%#x", first)
			}
			p.send(closing(CodeGoingAway, "")...)
			p.wantEnd()
			wantErr(t, e.wait(t), ErrIdle)
		})
	})
}

// A message that is sent to a peer extends IdleTimeout as one that is received does.
func TestIdleReader(t *testing.T) {
	clock := testclock.Install(t)
	conns, e := make(chan *Conn, 1), make(ends, 1)
	h := serve(t, "park", &Server{IdleTimeout: time.Minute,
		CloseTimeout: 24 * time.Hour, // the clock may advance again before the peer has answered
		OnMessage:    echo, OnClose: e.closed,
		OnOpen: func(c *Conn, _ *http.Request) error { conns <- c; return nil }})
	p := h.connect(t, "")
	c := <-conns
	for range 4 {
		clock.Advance(40 * time.Second)
		must(t, c.Write(Text, []byte("x")))
		p.wantText("x")
	}
	until(t, "it is idle", func() bool {
		clock.Advance(time.Minute)
		return h.server.Stats().TimedOut.Idle == 1
	})
	p.wantClose(CodeGoingAway)
	p.send(closing(CodeGoingAway, "")...)
	p.wantEnd()
	wantErr(t, e.wait(t), ErrIdle)
}

// A peer that sends half a message is closed. One that only is silent is not.
func TestMessageTimeout(t *testing.T) {
	const short = 150 * time.Millisecond // a connection that cannot be parked has deadlines in real time
	for _, kind := range hosts {
		t.Run(kind, func(t *testing.T) {
			clock := testclock.Install(t)
			for _, half := range [][]byte{text("half")[:1], text("half")[:7], frame(first, "a"), frame(ping, "p")[:3],
				join(text("whole"), text("half")[:8]), frame(first, "")} {
				e := make(ends, 10)
				h := serve(t, kind, &Server{ReadTimeout: short, OnMessage: echo, OnClose: e.closed})
				p := h.connect(t, "")
				said := func() {
					p.send(text("x")...)
					p.wantText("x")
				}
				said()
				until(t, "it is parked", func() bool {
					st := h.server.Stats()
					return kind == "opaque" || st.Parked == 1 && st.Running == 0
				})
				clock.Advance(4 * short) // a timer that is due has fired, though the wheel may be late
				said()
				if st := h.server.Lots()[0].Stats(); st.Expired != 0 { // silence alone does no harm
					t.Errorf("a timeout has passed: %+v", st)
				}
				p.send(half...)
				stop := make(chan bool)
				stopped := make(chan bool)
				go func() {
					defer close(stopped)
					for {
						select {
						case <-stop:
							return
						default:
						}
						if bytes.Equal(half, frame(first, "a")) {
							p.Conn.Write(frame(ping, "")) // does not help
						}
						clock.Advance(short / 4)
						await.Pause(time.Millisecond)
					}
				}()
				for {
					first, _ := p.next()
					if first == fin|opClose {
						break
					}
				}
				close(stop)
				<-stopped
				p.Close()
				err := e.wait(t)
				wantCode(t, err, CodePolicy, false)
				wantErr(t, err, ErrMessageTimeout)
				wantErr(t, err, os.ErrDeadlineExceeded)
				if n := h.server.Stats().TimedOut.Message; n != 1 {
					t.Errorf("%d were counted", n)
				}
			}
		})
	}
}

// Requests that cannot be upgraded are counted as rejected, and those beyond MaxConns as refused.
func TestRefused(t *testing.T) {
	h := serve(t, "net/http", &Server{OnMessage: echo, MaxConns: 1})
	for _, field := range []string{"Sec-WebSocket-Version: 8", "Origin: null"} {
		if p := h.request(t, strings.Replace(upgradeHead, "Sec-WebSocket-Version: 13", field, 1)+"\r\n"); p.answer.StatusCode < 400 {
			t.Error(p.answer.Status)
		}
	}
	p := h.connect(t, "")
	until(t, "there is one", func() bool { return h.server.Stats().Conns == 1 })
	if full := h.request(t, upgradeHead+"\r\n"); full.answer.StatusCode != 503 {
		t.Error(full.answer.Status)
	}
	if st := h.server.Stats(); st.Refused != 1 || st.Rejected != 2 || st.Accepted != 1 {
		t.Errorf("%+v", st)
	}
	p.send(text("x")...)
	p.wantText("x")
}

// A ResponseWriter that cannot be hijacked, and fields that make no sense, are answered with 500, and the log says why.
func TestInvalid(t *testing.T) {
	for _, s := range []*Server{
		{OnMessage: echo}, {}, {OnMessage: echo, Compression: 10}, {OnMessage: echo, SlowPolicy: 3},
		{OnMessage: echo, Subprotocols: []string{"a b"}}, {OnMessage: echo, Backend: "abacus"},
	} {
		l := new(log)
		s.Logger = l.logger()
		r, err := http.NewRequest("GET", "http://x/", nil)
		must(t, err)
		for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(k, v)
		}
		w := &recorder{header: http.Header{}}
		if _, err := s.Upgrade(w, r); err == nil || w.status != 500 || l.String() == "" {
			t.Errorf("%v, status %d, logged %q", err, w.status, l)
		}
		must(t, s.Shutdown(t.Context()))
	}
	wantErr(t, new(Server).Shutdown(nil), socknotify.ErrInvalid) //lint:ignore SA1012 it is what is tested
}

type recorder struct {
	header http.Header
	status int
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return len(b), nil }

// Shutdown tells all peers, waits for their answers and for handlers, and refuses new connections. Close waits for nothing.
func TestShutdown(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 10)
		entered, leave := make(chan bool), make(chan bool)
		h := serve(t, kind, &Server{OnClose: e.closed, OnMessage: func(*Conn, Kind, []byte) error {
			entered <- true
			<-leave
			return nil
		}})
		idle, busy := h.connect(t, ""), h.connect(t, "")
		busy.send(text("x")...)
		<-entered
		done := make(chan error)
		go func() { done <- h.server.Shutdown(t.Context()) }()
		idle.wantClose(CodeGoingAway)
		busy.wantClose(CodeGoingAway)
		if p := h.request(t, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"); p.answer.StatusCode != 503 {
			t.Error(p.answer.Status)
		}
		idle.send(closing(CodeGoingAway, "")...)
		idle.wantEnd()
		wantCode(t, e.wait(t), CodeGoingAway, false)
		select {
		case err := <-done:
			t.Errorf("Shutdown has not waited for the handler: %v", err)
		default:
		}
		busy.send(closing(CodeGoingAway, "")...)
		close(leave)
		busy.wantEnd()
		wantCode(t, e.wait(t), CodeGoingAway, false)
		must(t, <-done)
	})
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 10)
		h := serve(t, kind, &Server{OnClose: e.closed, OnMessage: echo})
		p := h.connect(t, "")
		p.send(text("x")...)
		p.wantText("x")
		must(t, h.server.Close())
		wantErr(t, e.wait(t), ErrServerClosed)
		if _, err := p.in.ReadByte(); err == nil {
			t.Error("still open")
		}
	})
	t.Run("context", func(t *testing.T) {
		e := make(ends, 10)
		h := serve(t, "park", &Server{OnClose: e.closed, OnMessage: echo, CloseTimeout: soon})
		p := h.connect(t, "")
		p.send(text("x")...)
		p.wantText("x")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		go func() {
			p.wantClose(CodeGoingAway)
			cancel(why)
		}()
		wantErr(t, h.server.Shutdown(ctx), why)
		wantCode(t, e.wait(t), CodeGoingAway, false)
	})
}

// An answeredListener holds back the goroutine of an upgrade that has written its answer, until release is closed.
type answeredListener struct {
	net.Listener
	answered, release chan bool
	once              *sync.Once
}

func (l answeredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &answeredConn{TCPConn: c.(*net.TCPConn), l: l}, nil
}

type answeredConn struct {
	*net.TCPConn
	l       answeredListener
	writing atomic.Bool // a write with a deadline has begun: that of the answer
}

func (c *answeredConn) NetConn() net.Conn { return c.TCPConn }

func (c *answeredConn) SetWriteDeadline(t time.Time) error {
	c.writing.Store(!t.IsZero())
	return c.TCPConn.SetWriteDeadline(t)
}

func (c *answeredConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if c.writing.Load() {
		c.l.once.Do(func() {
			close(c.l.answered)
			<-c.l.release
		})
	}
	return n, err
}

// A connection whose peer has the answer to its handshake when Shutdown begins is ended like the others.
func TestShutdownDuringUpgrade(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 1)
		l := answeredListener{answered: make(chan bool), release: make(chan bool), once: new(sync.Once)}
		h := serve(t, kind, &Server{OnClose: e.closed, OnMessage: echo, CloseTimeout: soon}, func(ln net.Listener) net.Listener {
			l.Listener = ln
			return l
		})
		p := h.connect(t, "")
		<-l.answered
		done := make(chan error)
		go func() { done <- h.server.Shutdown(t.Context()) }()
		until(t, "Shutdown has begun", func() bool {
			_, err := h.server.streams.OpenHTTP(new(stream.Stream), &recorder{header: http.Header{}})
			return err == ErrServerClosed
		})
		close(l.release)
		p.wantClose(CodeGoingAway)
		p.send(closing(CodeGoingAway, "")...)
		p.wantEnd()
		wantCode(t, e.wait(t), CodeGoingAway, false)
		must(t, <-done)
	})
}

// Many goroutines write to one connection while its handler does, and it reads slowly: every message arrives whole.
func TestConcurrentWrites(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		const writers, messages = 8, 50
		conns := make(chan *Conn, 1)
		h := serve(t, kind, &Server{MaxQueued: 64 << 20, Compression: 1, OnMessage: echo,
			OnOpen: func(c *Conn, _ *http.Request) error { conns <- c; return nil }})
		p := h.connect(t, "")
		c := <-conns
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for m := range messages {
					b := fmt.Appendf(nil, "%d %d %s", w, m, strings.Repeat(string(rune('a'+w)), 1+m*997))
					if m%2 == 0 {
						must(t, c.Write(Text, b))
						continue
					}
					prepared, err := h.server.Prepare(Text, b)
					must(t, err)
					must(t, c.WritePrepared(prepared))
				}
			})
		}
		var next [writers]int
		for i := range writers * messages {
			if i%40 == 0 {
				await.Pause(5 * time.Millisecond)
			}
			first, got := p.next()
			var w, m int
			fmt.Sscanf(got, "%d %d", &w, &m)
			if want := fmt.Sprintf("%d %d %s", w, m, strings.Repeat(string(rune('a'+w)), 1+m*997)); first != fin|byte(Text) || got != want || next[w] != m {
				t.Fatalf("%#x %.50q, want message %d of %d", first, got, next[w], w)
			}
			next[w]++
		}
		all.Wait()
		until(t, "nothing is queued", func() bool { return h.server.Stats().QueuedBytes == 0 })
	})
}

// A handler that sends more than MaxQueued waits by Flush; a bad message is refused.
func TestFlush(t *testing.T) {
	t.Parallel() // it waits
	each(t, func(t *testing.T, kind string) {
		const n, size = 200, 100 << 10
		result := make(chan error, 1)
		h := serve(t, kind, &Server{MaxQueued: 256 << 10, OnMessage: func(c *Conn, _ Kind, _ []byte) error {
			wantErr(t, c.Write(3, nil), socknotify.ErrInvalid)
			wantErr(t, c.Write(Text, []byte("\xff")), socknotify.ErrInvalid)
			wantErr(t, c.Ping(make([]byte, 126)), socknotify.ErrInvalid)
			var err error
			for i := 0; i < n && err == nil; i++ {
				if err = c.Write(Binary, bytes.Repeat([]byte{byte(i)}, size)); err == nil {
					err = c.Flush(t.Context())
				}
			}
			result <- err
			return err
		}})
		p := h.connect(t, "")
		p.send(text("go")...)
		for i := range n {
			first, b := p.next()
			if first != fin|byte(Binary) || b != strings.Repeat(string([]byte{byte(i)}), size) {
				t.Fatalf("message %d: %#x, %d bytes", i, first, len(b))
			}
		}
		must(t, <-result)
	})
}

// A peer that does not read is closed, or loses messages, and the queue is bounded.
func TestSlowPeer(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, policy := range []SlowPolicy{0, SlowClose, SlowDrop} {
			const size = 64 << 10
			e := make(ends, 1)
			conns := make(chan *Conn, 1)
			s := &Server{MaxQueued: 4 * size, SlowPolicy: policy, OnMessage: echo,
				OnOpen: func(c *Conn, _ *http.Request) error { conns <- c; return nil }}
			s.OnClose = func(c *Conn, err error) {
				if n := s.Stats().TimedOut.Slow; err == ErrSlow && n != 1 {
					t.Errorf("%d were slow when OnClose was called", n)
				}
				e.closed(c, err)
			}
			h := serve(t, kind, s)
			p := h.connect(t, "")
			c := <-conns
			b := make([]byte, size)
			sent := 0
			var err error
			for ; err == nil; sent++ {
				err = c.Write(Binary, b)
				if q := s.Stats().QueuedBytes; q > 5*size+100 {
					t.Fatalf("%d bytes are queued", q)
				}
			}
			if policy == SlowDrop {
				wantErr(t, err, ErrQueueFull)
			} else {
				wantErr(t, err, ErrSlow)
			}
			if policy != SlowDrop {
				wantErr(t, e.wait(t), ErrSlow)
				if st := s.Stats(); st.TimedOut.Slow != 1 || st.Dropped != 0 || st.QueuedBytes != 0 {
					t.Errorf("%+v", st)
				}
				continue
			}
			if st := s.Stats(); st.TimedOut.Slow != 0 || st.Dropped != 1 || st.Conns != 1 {
				t.Errorf("%+v", st)
			}
			for range sent - 1 { // what was not dropped comes whole
				if first, got := p.next(); first != fin|byte(Binary) || len(got) != size {
					t.Fatalf("%#x, %d bytes", first, len(got))
				}
			}
			until(t, "nothing is queued", func() bool { return s.Stats().QueuedBytes == 0 })
			p.send(text("again")...)
			p.wantText("again")
		}
	})
}

// A peer that reads nothing for WriteTimeout is closed, whether its connection is parked or its handler runs.
func TestWriteTimeout(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, parked := range []bool{true, false} {
			e := make(ends, 1)
			conns := make(chan *Conn, 1)
			leave := make(chan bool)
			s := &Server{MaxQueued: 64 << 20, WriteTimeout: 100 * time.Millisecond, OnClose: e.closed,
				OnOpen:    func(c *Conn, _ *http.Request) error { conns <- c; return nil },
				OnMessage: func(*Conn, Kind, []byte) error { leave <- true; leave <- true; return nil }}
			h := serve(t, kind, s)
			p := h.connect(t, "")
			c := <-conns
			if !parked {
				p.send(text("wait")...)
				<-leave
			}
			until(t, "it is counted", func() bool {
				if s.Stats().QueuedBytes < 1<<20 {
					c.Write(Binary, make([]byte, 64<<10)) // until the system takes no more
				}
				return s.Stats().TimedOut.Slow == 1
			})
			if !parked {
				<-leave
			}
			wantErr(t, e.wait(t), ErrSlow)
		}
	})
}

// A connection that is closed while the peer still sends gets its close frame, and not a reset that overtakes it.
func TestCloseWhileSending(t *testing.T) {
	e := make(ends, 1)
	h := serve(t, "park", &Server{OnMessage: echo, MaxMessage: 1000, OnClose: e.closed})
	p := h.connect(t, "")
	go func() {
		p.Conn.Write(frame(fin|byte(Binary), strings.Repeat("x", 1<<20)))
		p.Conn.(*net.TCPConn).CloseWrite()
	}()
	p.wantClose(CodeTooBig)
	p.wantEnd()
	wantErr(t, e.wait(t), ErrTooLong)
}

// A peer that has sent a close frame, as the first of the two or as the answer, gets the end of the
// stream and no reset, also if it goes on sending. The connection has ended when the peer ends its
// own stream.
func TestSendingAfterClose(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, byServer := range []bool{false, true} {
			e, conns := make(ends, 1), make(chan *Conn, 1)
			h := serve(t, kind, &Server{OnMessage: echo, OnClose: e.closed, CloseTimeout: soon,
				OnOpen: func(c *Conn, _ *http.Request) error { conns <- c; return nil }})
			p := h.connect(t, "")
			if c := <-conns; byServer {
				must(t, c.Close(CodeNormal, ""))
			}
			p.send(join(closing(CodeNormal, ""), text("late"))...)
			p.wantClose(CodeNormal)
			if n, err := io.Copy(io.Discard, p.in); n != 0 || err != nil {
				t.Fatalf("%d bytes and %v, want the end of the stream", n, err)
			}
			for range 100 { // a connection that is closed answers the first by a reset
				p.send(text("later")...)
			}
			select {
			case err := <-e:
				t.Fatalf("by the server %t: ended before the peer's stream: %v", byServer, err)
			default:
			}
			must(t, p.Conn.(interface{ CloseWrite() error }).CloseWrite())
			wantCode(t, e.wait(t), CodeNormal, !byServer)
		}
	})
}

// A peer that never ends its stream is cut off after CloseTimeout, and after many bytes.
func TestEndlessAfterClose(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		e := make(ends, 1)
		h := serve(t, kind, &Server{OnMessage: echo, OnClose: e.closed, CloseTimeout: soon})
		p := h.connect(t, "")
		p.send(closing(CodeNormal, "")...)
		p.wantClose(CodeNormal)
		for b := frame(fin|byte(Binary), strings.Repeat("x", 1<<20)); ; {
			if _, err := p.Conn.Write(b); err != nil {
				if isTimeout(err) {
					t.Fatal("the server reads for as long as the peer sends")
				}
				break
			}
		}
		wantCode(t, e.wait(t), CodeNormal, true)

		silent := serve(t, kind,
			&Server{OnMessage: echo, OnClose: e.closed, CloseTimeout: time.Millisecond})
		p = silent.connect(t, "")
		p.send(closing(CodeNormal, "")...)
		wantCode(t, e.wait(t), CodeNormal, true)
	})
}

// A connection that has no half-close ends when both close frames were sent.
func TestCloseWithoutHalfClose(t *testing.T) {
	e := make(ends, 1)
	h := serve(t, "net/http", &Server{OnMessage: echo, OnClose: e.closed, CloseTimeout: soon},
		func(ln net.Listener) net.Listener { return wholeListener{ln} })
	p := h.connect(t, "")
	p.send(closing(CodeNormal, "")...)
	p.wantClose(CodeNormal)
	wantCode(t, e.wait(t), CodeNormal, true)
}

// A wholeListener's connections have no CloseWrite method.
type wholeListener struct{ net.Listener }

func (l wholeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// A peer that sends more pings or pongs in a second than MaxPings is sent away. Others are not.
func TestMaxPings(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, op := range []byte{ping, fin | opPong} {
			ended := make(chan error, 1)
			h := serve(t, kind, &Server{MaxPings: 20, OnMessage: echo,
				OnClose: func(_ *Conn, err error) { ended <- err }})
			p := h.connect(t, "")
			for range 20 {
				p.send(frame(op, "")...)
			}
			p.send(text("still here")...)
			for first := byte(0); first != fin|byte(Text); first, _ = p.next() {
			}
			p.send(bytes.Repeat(frame(op, ""), 200)...) // more than three seconds allow
			for first := byte(0); first != fin|opClose; first, _ = p.next() {
			}
			p.Close()
			wantCode(t, <-ended, CodePolicy, false)
		}
	})
}

// A peer that pings and does not read gets an answer to the latest ping, and at most to one before. MaxQueued does not apply
// to them.
func TestPongsToSlowPeer(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		const pings, much = 1000, 8 << 20 // more than the system takes
		conns, got := make(chan *Conn, 1), make(chan string, 1)
		s := &Server{MaxQueued: 1, WriteTimeout: soon, CloseTimeout: soon,
			OnOpen:    func(c *Conn, _ *http.Request) error { conns <- c; return nil },
			OnMessage: func(_ *Conn, _ Kind, b []byte) error { got <- string(b); return nil }}
		h := serve(t, kind, s)
		p := h.connect(t, "")
		must(t, socketOf(p.Conn).SetReadBuffer(64<<10)) // it would grow
		c := <-conns
		message := make([]byte, much)
		wantMessage := func() {
			t.Helper()
			if first, b := p.next(); first != fin|byte(Binary) || len(b) != much {
				t.Fatalf("%#x, %d bytes", first, len(b))
			}
		}
		must(t, c.Write(Binary, message))
		for i := range pings {
			p.send(frame(ping, fmt.Sprint(i))...)
		}
		p.send(text("all")...)
		if b := <-got; b != "all" {
			t.Fatalf("%q", b)
		}
		if n := c.stream.Queued(); n > much+3*10 {
			t.Errorf("%d bytes are queued", n)
		}
		wantMessage()
		latest := func(want string) {
			t.Helper()
			first, payload := p.next()
			if first == pong && payload != want { // it was begun
				first, payload = p.next()
			}
			if first != pong || payload != want {
				t.Fatalf("%#x %q, want a pong with %q", first, payload, want)
			}
		}
		latest(fmt.Sprint(pings - 1))
		until(t, "nothing is queued", func() bool { return s.Stats().QueuedBytes == 0 })

		// The latest one goes before a close frame, and none behind it.
		must(t, c.Write(Binary, message))
		p.send(join(frame(ping, "a"), frame(ping, "b"), frame(ping, "c"), closing(CodeNormal, ""))...)
		until(t, "all has come", c.stream.Closing)
		wantMessage()
		latest("c")
		p.wantClose(CodeNormal)
		p.wantEnd()
	})
}

// A goneListener counts the attempts of the test's goroutine to find the descriptor of a connection that was closed. For
// each of them a lot looks at its whole table.
type goneListener struct {
	net.Listener
	gone *atomic.Int64
}

func (l goneListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &goneConn{c.(*net.TCPConn), l.gone}, nil
}

type goneConn struct {
	*net.TCPConn
	gone *atomic.Int64
}

func (c *goneConn) NetConn() net.Conn { return c.TCPConn }

func (c *goneConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.TCPConn.SyscallConn()
	return goneRaw{raw, c.gone}, err
}

type goneRaw struct {
	syscall.RawConn
	gone *atomic.Int64
}

func (r goneRaw) Control(f func(uintptr)) error {
	err := r.RawConn.Control(f)
	if err != nil && strings.Contains(string(debug.Stack()), "TestCloseIsLinear") {
		r.gone.Add(1)
	}
	return err
}

// Closing connections costs the same for each, however many there are: the lot does not look for one that is closed already.
func TestCloseIsLinear(t *testing.T) {
	const n = 30
	for _, kind := range []string{"net/http", "net/http TLS"} {
		var gone atomic.Int64
		s := &Server{OnMessage: echo}
		h := serve(t, kind, s, func(l net.Listener) net.Listener { return goneListener{l, &gone} })
		for range n {
			h.connect(t, "")
		}
		until(t, "all are parked", func() bool { st := s.Stats(); return st.Parked == n && st.Running == 0 })
		must(t, s.Close())
		if g := gone.Load(); g > 0 {
			t.Errorf("%s: %d of %d connections were looked for after they were closed", kind, g, n)
		}
	}
}

// A stuckConn is a connection whose Close waits until it was parked. Its socket stays open, so that the lot does not find
// by itself that it is closed.
type stuckConn struct {
	net.Conn // a hiddenConn
	server   *Server
	closing  chan bool
}

// A hiddenConn is a socket that Abort does not find, and so does not close.
type hiddenConn struct{ *net.TCPConn }

func (c *stuckConn) Close() error {
	close(c.closing)
	for c.server.Lots()[0].Stats().Parks == 0 {
		await.Pause(time.Millisecond)
	}
	return nil
}

type stuckListener struct {
	net.Listener
	conns chan *stuckConn
	s     *Server
}

func (l stuckListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	stuck := &stuckConn{hiddenConn{c.(*net.TCPConn)}, l.s, make(chan bool)}
	l.conns <- stuck
	return stuck, nil
}

// Abort while the connection is being parked for the first time: the lot does not have it before it is closed.
func TestCloseNowDuringPark(t *testing.T) {
	e := make(ends, 1)
	conns, opened := make(chan *stuckConn, 1), make(chan *Conn, 1)
	var began atomic.Bool
	var stuck *stuckConn
	s := &Server{OnMessage: echo, OnClose: e.closed, PingInterval: -1,
		OnOpen: func(c *Conn, _ *http.Request) error { opened <- c; return nil }}
	s.Unwrap = func(in net.Conn) net.Conn { // called by Park, and by Abort
		if len(opened) > 0 && !began.Swap(true) {
			stuck = <-conns
			go (<-opened).Abort()
			<-stuck.closing
		}
		if hidden, ok := in.(hiddenConn); ok {
			return hidden
		}
		return nil
	}
	h := serve(t, "net/http", s, func(l net.Listener) net.Listener { return stuckListener{l, conns, s} })
	h.connect(t, "")
	wantErr(t, e.wait(t), ErrClosed)
	must(t, stuck.Conn.Close())
}

// The steady state of an echo allocates nothing but what the system calls of package park need.
func BenchmarkEcho(b *testing.B) {
	for _, kind := range []string{"park", "park TLS"} {
		b.Run(kind, func(b *testing.B) {
			h := serve(b, kind, &Server{OnMessage: echo})
			p := h.connect(b, "")
			request, answer := text("Hello"), make([]byte, 7)
			b.ReportAllocs()
			for b.Loop() {
				p.Conn.Write(request)
				if _, err := io.ReadFull(p.in, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Frames begin after the whole request. So a handshake with a body, which would be taken for frames,
// is refused, and one that says that it has none is not.
func TestBody(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		opened := make(chan bool, 10)
		h := serve(t, kind, &Server{OnMessage: echo, OnOpen: func(*Conn, *http.Request) error { opened <- true; return nil }})
		first := string(text("first"))
		body := fmt.Sprintf("Content-Length: %d\r\n", len(first))
		chunk := fmt.Sprintf("%x\r\n%s\r\n", len(first), first)
		again := func(p *peer, header, early string) {
			p.send([]byte(upgradeHead + header + "\r\n" + early)...)
			var err error
			p.answer, err = http.ReadResponse(p.in, &http.Request{Method: "GET"})
			must(t, err)
		}
		for _, c := range []struct{ name, header, body string }{
			{"length", body, first},
			{"chunks", "Transfer-Encoding: chunked\r\n", chunk + "0\r\n\r\n"},
			{"no chunk", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"},
			{"Expect", "Expect: 100-continue\r\n" + body, ""},
			{"Expect, and not waited for", "Expect: 100-continue\r\n" + body, first},
			{"Expect and chunks", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", chunk + "0\r\n\r\n"},
		} {
			p := h.request(t, upgradeHead+c.header+"\r\n"+c.body)
			if p.answer.StatusCode != http.StatusBadRequest {
				t.Fatalf("%s: %s", c.name, p.answer.Status)
			}
			if p.answer.Close {
				continue
			}
			if _, err := io.Copy(io.Discard, p.answer.Body); err != nil {
				t.Fatal(err)
			}
			again(p, "", string(text("next"))) // the body was not taken for anything else
			if p.answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s: then %s", c.name, p.answer.Status)
			}
			<-opened
			p.wantText("next")
		}
		if len(opened) > 0 {
			t.Error("OnOpen was called")
		}
		if st := h.server.Stats(); st.Rejected != 6 {
			t.Errorf("%d were rejected, want 6", st.Rejected)
		}
		for _, header := range []string{"", "Content-Length: 0\r\n", "Expect: 100-continue\r\nContent-Length: 0\r\n"} {
			p := h.request(t, upgradeHead+header+"\r\n"+first)
			if p.answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%q: %s", header, p.answer.Status)
			}
			p.wantText("first")
		}
	})
}

// upgradeHead is a request without its last line.
const upgradeHead = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// What a peer may send is counted without an overflow, however much that is and however long it takes.
func TestWideCounters(t *testing.T) {
	s := &Server{OnMessage: echo, MaxPings: 1}
	must(t, s.prepare())
	c := &Conn{server: s, lastIn: time.Second}
	if !c.control() || c.control() {
		t.Error("MaxPings is not 1")
	}
	if c.lastIn += 65536 * time.Second; !c.control() {
		t.Error("a ping was counted in a second 65,536 seconds later")
	}
	s.MaxPings, c.lastIn = 100_000, 0
	for n := range s.MaxPings {
		if !c.control() {
			t.Fatalf("ping %d was refused", n)
		}
	}
	c.deaf = true
	for range 3 {
		if c.consume(make([]byte, 64<<20)); c.discarded <= maxDiscarded {
			t.Errorf("%d KiB were discarded", c.discarded)
		}
	}
}
