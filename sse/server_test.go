package sse

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/words"
	"github.com/socknotify/socknotify/park"
)

func TestMain(m *testing.M) {
	if !playRole() {
		leaks.Main(m)
	}
}

// soon bounds the wait for anything that must happen.
const soon = 2 * time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// A site is an HTTP server that a test has started.
type site struct {
	*Server
	addr   string
	tls    *tls.Config // of clients, or nil
	closed chan error  // what OnClose gets
}

// The kinds of sites: net/http and park.HTTPServer, with and without TLS, and handlers whose
// connection cannot be taken over.
var kinds = []string{"net/http", "park", "net/http TLS", "park TLS", "not hijackable", "HTTP/2"}

// A plainWriter hides all but the Flusher and the deadline of a ResponseWriter.
type plainWriter struct{ http.ResponseWriter }

func (w plainWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w plainWriter) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

// serve starts a server that ends with the test. wrap may be nil.
func serve(t testing.TB, kind string, s *Server, wrap func(http.Handler) http.Handler) *site {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	x := &site{Server: s, addr: ln.Addr().String(), closed: make(chan error, 100)}
	onClose := s.OnClose
	s.OnClose = func(c *Conn, err error) {
		if onClose != nil {
			onClose(c, err)
		}
		x.closed <- err
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	hs := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	if wrap != nil {
		hs.Handler = wrap(s)
	}
	if kind == "not hijackable" {
		inner := hs.Handler
		hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(plainWriter{w}, r) })
	}
	if strings.HasSuffix(kind, "TLS") || kind == "HTTP/2" {
		cert, pool, err := selfcert.New(24*time.Hour, "localhost")
		must(t, err)
		x.tls = &tls.Config{RootCAs: pool, ServerName: "localhost"}
		hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		if kind != "HTTP/2" {
			hs.TLSConfig.NextProtos = []string{"http/1.1"}
			hs.Protocols = new(http.Protocols)
			hs.Protocols.SetHTTP1(true)
		}
	}
	ended := make(chan error, 1)
	run, shutdown := hs.Serve, hs.Shutdown
	runTLS := hs.ServeTLS
	if strings.HasPrefix(kind, "park") {
		ps := &park.HTTPServer{Server: hs}
		run, runTLS, shutdown = ps.Serve, ps.ServeTLS, ps.Shutdown
	}
	go func() {
		if x.tls != nil {
			ended <- runTLS(ln, "", "")
		} else {
			ended <- run(ln)
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		s.Close()
		must(t, s.Shutdown(ctx))
		hs.Close()
		must(t, shutdown(ctx))
		<-ended
		if st := s.Stats(); st.Conns != 0 || st.QueuedBytes != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	return x
}

func each(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

// A client is one that a test has connected.
type client struct {
	*parser
	answer *http.Response
	close  func()
}

// connect sends a request. lastID may be empty.
func (x *site) connect(t testing.TB, lastID string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	url := "http://" + x.addr
	if x.tls != nil {
		url = "https://" + x.addr
	}
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	must(t, err)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	transport := &http.Transport{TLSClientConfig: x.tls, ForceAttemptHTTP2: true}
	answer, err := transport.RoundTrip(r)
	must(t, err)
	c := &client{parser: newParser(answer.Body), answer: answer, close: func() {
		cancel()
		answer.Body.Close()
		transport.CloseIdleConnections()
	}}
	t.Cleanup(c.close)
	return c
}

// want reads an event.
func (c *client) want(t testing.TB, want received) {
	t.Helper()
	if got, err := c.next(); err != nil || got != want {
		t.Fatalf("%q, %v, want %q", got, err, want)
	}
}

// A client gets the head, what OnOpen has sent, and what is sent and broadcast later; the headers
// of middleware arrive.
func TestServer(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		conns := make(chan *Conn, 10)
		x := serve(t, kind, &Server{OnOpen: func(c *Conn, r *http.Request, lastID string) error {
			c.Value = lastID
			conns <- c
			return c.Send(Event{ID: "1", Name: "hello", Data: lastID + "\n" + r.URL.Path})
		}}, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set("Content-Length", "5")
				h.Set("Content-Encoding", "gzip")
				h.Add("Set-Cookie", "a=b")
				next.ServeHTTP(w, r)
			})
		})
		p := x.connect(t, "e-7")
		h := p.answer.Header
		if p.answer.StatusCode != 200 || h.Get("Content-Type") != ContentType || h.Get("Set-Cookie") != "a=b" ||
			h.Get("Content-Encoding") != "" || h.Get("Cache-Control") != "no-cache, no-transform" || h.Get("Date") == "" {
			t.Errorf("%s %v", p.answer.Status, h)
		}
		if taken := kind != "HTTP/2" && kind != "not hijackable"; taken && (!p.answer.Close || p.answer.TransferEncoding != nil ||
			p.answer.ContentLength != -1) {
			t.Errorf("close %v, encoding %v, length %d", p.answer.Close, p.answer.TransferEncoding, p.answer.ContentLength)
		}
		p.want(t, received{"hello", "e-7\n/", "1"})
		if ms, _ := strconv.Atoi(p.retry); ms < 1500 || ms > 4500 {
			t.Errorf("retry %q", p.retry)
		}
		c := <-conns
		must(t, c.Send(Event{Data: "one"}))
		p.want(t, received{"", "one", "1"})
		other := x.connect(t, "")
		other.want(t, received{"hello", "\n/", "1"})
		<-conns
		prepared, err := Prepare(Event{ID: "2", Data: "all"})
		must(t, err)
		must(t, c.SendPrepared(prepared))
		p.want(t, received{"", "all", "2"})
		if n := x.Broadcast(prepared); n != 2 {
			t.Errorf("sent to %d", n)
		}
		p.want(t, received{"", "all", "2"})
		other.want(t, received{"", "all", "2"})
		must(t, c.Flush(t.Context()))
		if c.Value != "e-7" || c.RemoteAddr().String() == "" {
			t.Error("the client's Value or address")
		}
		other.close()
		<-x.closed
		must(t, c.Close())
		if _, err := p.next(); err != io.EOF {
			t.Errorf("%v, want the end of the stream", err)
		}
		p.close()
		wantErr(t, <-x.closed, stream.ErrClosed)
		wantErr(t, c.Send(Event{}), net.ErrClosed)
		await.Until(t, "both are gone", func() bool { return x.Stats().Conns == 0 })
		if st := x.Stats(); st.Accepted != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// The bytes of the answer.
func TestHead(t *testing.T) {
	for version, want := range map[string]string{"1.0": "HTTP/1.0 200 OK", "1.1": "HTTP/1.1 200 OK"} {
		x := serve(t, "park", &Server{Retry: -1}, nil)
		conn, err := net.Dial("tcp", x.addr)
		must(t, err)
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/"+version+"\r\nHost: x\r\n\r\nxyz")
		in := bufio.NewReader(conn)
		var lines []string
		for {
			line, err := in.ReadString('\n')
			must(t, err)
			if line == "\r\n" {
				break
			}
			lines = append(lines, strings.TrimSuffix(line, "\r\n"))
		}
		if len(lines) != 6 || lines[0] != want || lines[1] != "Connection: close" || !strings.HasPrefix(lines[2], "Date: ") ||
			!reflect.DeepEqual(lines[3:], []string{"Cache-Control: no-cache, no-transform", "Content-Type: text/event-stream",
				"X-Accel-Buffering: no"}) {
			t.Errorf("%q", lines)
		}
		p, err := Prepare(Event{Data: "x"})
		must(t, err)
		await.Until(t, "it is open", func() bool { return x.Broadcast(p) == 1 })
		if line, err := in.ReadString('\n'); err != nil || line != "data: x\n" {
			t.Errorf("%q, %v", line, err)
		}
		conn.Close()
		<-x.closed
	}
}

// A handler can be called with a ResponseRecorder.
func TestRecorder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	s := &Server{Logger: slog.New(slog.DiscardHandler), OnClose: func(_ *Conn, err error) { closed <- err },
		OnOpen: func(c *Conn, _ *http.Request, _ string) error {
			c.Send(Event{Data: "x"})
			must(t, c.Flush(t.Context()))
			cancel()
			return nil
		}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.Code != 200 || w.Header().Get("Content-Type") != ContentType || !w.Flushed || !strings.HasSuffix(w.Body.String(), "\n\ndata: x\n\n") {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
	wantErr(t, <-closed, io.EOF)
	must(t, s.Shutdown(t.Context()))
}

// Other methods and clients beyond the limits are refused, and so is everything after Shutdown.
func TestRefused(t *testing.T) {
	wantErr(t, new(Server).Shutdown(nil), socknotify.ErrInvalid) //lint:ignore SA1012 it is what is tested
	each(t, func(t *testing.T, kind string) {
		x := serve(t, kind, &Server{MaxConns: 1}, nil)
		p := x.connect(t, "")
		if second := x.connect(t, ""); second.answer.StatusCode != 503 {
			t.Error(second.answer.Status)
		}
		w := httptest.NewRecorder()
		_, err := x.Open(w, httptest.NewRequest("POST", "/", nil))
		if wantErr(t, err, errMethod); w.Code != 405 || w.Header().Get("Allow") != "GET" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if st := x.Stats(); st.Refused != 1 || st.Rejected != 1 || st.Accepted != 1 {
			t.Errorf("%+v", st)
		}
		done := make(chan error)
		before := p.retry
		go func() { done <- x.Shutdown(t.Context()) }()
		if _, err := p.next(); err != io.EOF {
			t.Errorf("%v, want the end of the stream", err)
		}
		if p.retry == "" || p.retry == before {
			t.Errorf("retry %q, then %q", before, p.retry)
		}
		p.close()
		wantErr(t, <-x.closed, park.ErrServerClosed)
		must(t, <-done)
		if after := x.connect(t, ""); after.answer.StatusCode != 503 {
			t.Error(after.answer.Status)
		}
	})
}

// An error and a panic of OnOpen end the client, which gets what was sent before.
func TestOpenFails(t *testing.T) {
	own := errors.New("own")
	each(t, func(t *testing.T, kind string) {
		x := serve(t, kind, &Server{OnOpen: func(c *Conn, _ *http.Request, lastID string) error {
			c.Send(Event{Data: "before"})
			if lastID == "panic" {
				panic("on purpose")
			}
			return own
		}}, nil)
		for _, how := range []string{"panic", "error"} {
			p := x.connect(t, how)
			p.want(t, received{"", "before", ""})
			if _, err := p.next(); err != io.EOF {
				t.Errorf("%v, want the end of the stream", err)
			}
			p.close()
			err := <-x.closed
			if how == "panic" && !errors.As(err, new(*park.PanicError)) || how == "error" && err != own {
				t.Errorf("%s: %v", how, err)
			}
		}
		if n := x.Stats().Panics; n != 1 {
			t.Errorf("%d panics", n)
		}
	})
}

// A silent client gets a comment, or what OnHeartbeat sends.
func TestHeartbeat(t *testing.T) {
	for _, hook := range []bool{false, true} {
		clock := testclock.Install(t)
		s := &Server{Heartbeat: time.Minute, Retry: -1}
		want := ":\n"
		if hook {
			want = "data: beat\n"
			s.OnHeartbeat = func(c *Conn) { c.Send(Event{Data: "beat"}) }
		}
		x := serve(t, "park", s, nil)
		conn, err := net.Dial("tcp", x.addr)
		must(t, err)
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		in := bufio.NewReader(conn)
		_, err = http.ReadResponse(in, nil)
		must(t, err)
		lines := make(chan string, 1000)
		go func() {
			defer close(lines)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				lines <- line
			}
		}()
		for range 3 {
			// Again and again, because the time begins when the stream has been parked.
			await.Until(t, "a heartbeat", func() bool {
				clock.Advance(time.Minute + time.Second)
				return len(lines) >= 2
			})
			for _, want := range []string{want, "\n"} {
				if line := <-lines; line != want {
					t.Fatalf("%q, want %q", line, want)
				}
			}
		}
		conn.Close()
		<-x.closed
	}
}

// A client that does not read is closed, or loses events, and Broadcast waits for none.
func TestSlowClient(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, policy := range []stream.SlowPolicy{0, stream.SlowDrop} {
			x := serve(t, kind, &Server{MaxQueued: 64 << 10, SlowPolicy: policy}, nil)
			x.connect(t, "")
			p, err := Prepare(Event{Data: strings.Repeat("x", 16<<10)})
			must(t, err)
			await.Until(t, "it is open", func() bool { return x.Broadcast(p) == 1 })
			for x.Broadcast(p) == 1 {
				if q := x.Stats().QueuedBytes; q > 96<<10 {
					t.Fatalf("%d bytes are queued", q)
				}
			}
			if policy == stream.SlowDrop {
				if st := x.Stats(); st.Dropped != 1 || st.Conns != 1 {
					t.Errorf("%+v", st)
				}
				continue
			}
			wantErr(t, <-x.closed, park.ErrSlow)
			if st := x.Stats(); st.TimedOut.Slow != 1 || st.Dropped != 0 {
				t.Errorf("%+v", st)
			}
		}
	})
}

// A client that ends its side of the connection, or not, and reads nothing is closed by WriteTimeout at the latest: it
// holds neither the handler nor what is queued.
func TestStoppedClient(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		for _, half := range []bool{false, true} {
			x := serve(t, kind, &Server{MaxQueued: 64 << 20, WriteTimeout: 100 * time.Millisecond, OnOpen: func(c *Conn, _ *http.Request, _ string) error {
				return c.Send(Event{Data: strings.Repeat("x", 16<<20)})
			}}, nil)
			if kind == "HTTP/2" {
				x.connect(t, "") // its request has ended the stream's other direction
			} else {
				conn, err := net.Dial("tcp", x.addr)
				must(t, err)
				if x.tls != nil {
					conn = tls.Client(conn, x.tls)
				}
				defer conn.Close()
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				if half {
					must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
				}
			}
			if err := await.Receive(t, "OnClose", x.closed); !errors.Is(err, park.ErrSlow) && !(half && errors.Is(err, io.EOF)) {
				t.Errorf("half-closed %t: %v", half, err)
			}
			await.Until(t, "nothing is left", func() bool { st := x.Stats(); return st.Conns == 0 && st.QueuedBytes == 0 })
		}
	})
}

func TestWords(t *testing.T) {
	words.Check(t, reflect.TypeFor[Server](), reflect.TypeFor[Stats]())
	words.Keys(t, ".")
}

// A negative number means that there is no such limit, and a value that cannot work is named.
func TestFields(t *testing.T) {
	s := &Server{Heartbeat: -1, Retry: -1}
	words.Negative(s)
	x := serve(t, "park", s, nil)
	p := x.connect(t, "")
	event, err := Prepare(Event{Data: "x"})
	must(t, err)
	await.Until(t, "it is open", func() bool { return x.Broadcast(event) == 1 })
	p.want(t, received{"", "x", ""})
	for field, s := range map[string]*Server{"SlowPolicy": {SlowPolicy: 9}, "Backend": {Backend: "none such"}} {
		s.Logger = slog.New(slog.DiscardHandler)
		w := httptest.NewRecorder()
		_, err := s.Open(w, httptest.NewRequest("GET", "/", nil))
		words.Invalid(t, field, err)
		if w.Code != 500 {
			t.Error(w.Code)
		}
	}
}

// With the longest durations in its fields a server works as without timeouts.
func TestLongestDurations(t *testing.T) {
	durationtest.Longest(t, new(Server), func(t *testing.T, set func(*Server)) {
		s := &Server{}
		set(s)
		x := serve(t, "park", s, nil)
		p := x.connect(t, "")
		event, err := Prepare(Event{Data: strings.Repeat("x", 64<<10)})
		must(t, err)
		await.Until(t, "it is open", func() bool { return x.Broadcast(event) == 1 })
		for range 50 { // more than the system takes at once
			x.Broadcast(event)
		}
		p.want(t, received{"", strings.Repeat("x", 64<<10), ""})
		await.Until(t, "it is parked", func() bool { return x.Stats().Parked == 1 })
	})
}

// A Server without a Logger logs a panic.
func TestPanicWithoutLogger(t *testing.T) {
	words.Panic(t, func(value string) {
		closed := make(chan error, 1)
		s := &Server{OnOpen: func(*Conn, *http.Request, string) error { panic(value) },
			OnClose: func(_ *Conn, err error) { closed <- err }}
		web := httptest.NewServer(s)
		defer web.Close()
		answer, err := http.Get(web.URL)
		must(t, err)
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err := <-closed; !errors.As(err, new(*park.PanicError)) {
			t.Errorf("%T", err)
		}
		must(t, s.Shutdown(t.Context()))
	})
}

// A request whose connection is taken over has no body: the client would have sent it as a client of
// events.
func TestBody(t *testing.T) {
	for _, kind := range []string{"net/http", "park"} {
		x := serve(t, kind, &Server{}, nil)
		for _, c := range []struct {
			header, body string
			code         int
		}{
			{"Content-Length: 5\r\n", "hello", 400},
			{"Transfer-Encoding: chunked\r\n", "0\r\n\r\n", 400},
			{"Expect: 100-continue\r\nContent-Length: 5\r\n", "", 400},
			{"Content-Length: 0\r\n", "", 200},
			{"", "", 200},
		} {
			conn, err := net.Dial("tcp", x.addr)
			must(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"+c.header+"\r\n"+c.body)
			must(t, err)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if r.StatusCode != c.code {
				t.Errorf("%s, %q: %s, want %d", kind, c.header, r.Status, c.code)
			}
		}
		if st := x.Stats(); st.Rejected != 3 || st.Accepted != 2 {
			t.Errorf("%+v", st)
		}
	}
}
