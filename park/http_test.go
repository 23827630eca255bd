package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A testServer is a running HTTPServer that records the states of its connections.
type testServer struct {
	*HTTPServer
	t       testing.TB
	address string
	served  chan error

	mu     sync.Mutex
	states map[net.Conn][]http.ConnState
}

// newTestServer starts a server. set, if not nil, configures it; serve, if not nil, replaces HTTPServer.Serve.
func newTestServer(t testing.TB, set func(*HTTPServer), serve func(*HTTPServer, net.Listener) error) *testServer {
	t.Helper()
	s := &testServer{t: t, served: make(chan error, 1), states: make(map[net.Conn][]http.ConnState)}
	s.HTTPServer = &HTTPServer{Linger: -1, Server: &http.Server{
		Handler:  httpcorpus.Handler(),
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(conn net.Conn, state http.ConnState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.states[conn] = append(s.states[conn], state)
		},
	}}
	if set != nil {
		set(s.HTTPServer)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	s.address = ln.Addr().String()
	if serve == nil {
		serve = (*HTTPServer).Serve
	}
	go func() { s.served <- serve(s.HTTPServer, ln) }()
	t.Cleanup(func() {
		s.Close()
		check.OK(t, s.Shutdown(context.Background()))
		check.Is(t, await.Value(t, s.served), http.ErrServerClosed)
		await.Until(t, "no connection is counted any more", func() bool { return s.Stats().Conns == 0 })
	})
	return s
}

// A connection is parked after it has lingered, and not before.
func TestHTTPLinger(t *testing.T) {
	s := newTestServer(t, func(s *HTTPServer) { s.Linger = 30 * time.Millisecond }, nil)
	conn, in := s.request()
	for range 3 {
		for range 20 {
			s.ask(conn, in)
		}
		await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	}
	s.HTTPServer.served()[0].evictIdle()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
}

// Only a connection whose latest pause was short lingers.
func TestHTTPLingersWhenBusy(t *testing.T) {
	clock := testclock.Install(t)
	var latest *session
	var lingers bool
	s := newTestServer(t, func(s *HTTPServer) {
		s.Linger = 0
		next := s.Server.Handler
		s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			latest = r.Context().Value(sessionKey{}).(*session)
			lingers = latest.lingers
			next.ServeHTTP(w, r)
		})
	}, nil)
	isParked := func() {
		t.Helper()
		await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	}
	conn, in := s.request()
	for range 3 {
		if lingers {
			t.Fatal("the connection lingers after a pause, or when it is new")
		}
		isParked()
		s.ask(conn, in)
		if !lingers {
			t.Fatal("the connection does not linger, although no time has passed")
		}
		for busy := range 3 {
			before := latest
			if s.ask(conn, in); latest != before {
				t.Fatalf("parked after busy request %d", busy)
			}
		}
		await.Until(t, "parked", func() bool { // it may not have begun to linger
			clock.Advance(serving.DefaultLinger)
			return s.Stats().Parked == 1
		})
		s.ask(conn, in)
	}
}

// A ConnState hook that waits delays no other connection, although one worker of the lot serves all.
func TestHTTPHookWaits(t *testing.T) {
	for _, name := range []string{"idle", "silent"} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.Install(t)
			waits, end := make(chan bool, 1), make(chan bool)
			var once sync.Once
			s := newTestServer(t, func(s *HTTPServer) {
				s.Server.IdleTimeout, s.Server.ReadHeaderTimeout = time.Hour, time.Hour
				next := s.Server.ConnState
				s.Server.ConnState = func(conn net.Conn, state http.ConnState) {
					next(conn, state)
					if state == http.StateClosed {
						once.Do(func() {
							waits <- true
							<-end
						})
					}
				}
			}, nil)
			t.Cleanup(func() { close(end) })
			if name == "idle" {
				s.request()
			} else {
				_, err := net.Dial("tcp", s.address)
				check.OK(t, err)
			}
			await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
			await.Until(t, "the hook waits", func() bool {
				clock.Advance(2 * time.Hour) // the timeout may not have been set before
				return len(waits) > 0
			})
			conn, in := s.request()
			for range 3 {
				await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
				s.ask(conn, in)
			}
		})
	}
}

// A connection that cannot be registered is served without parking. Here another port has registered it.
func TestHTTPParkingFails(t *testing.T) {
	s := newTestServer(t, func(s *HTTPServer) { registerElsewhere(t, s.Server) }, nil)
	conn, in := s.request()
	for range 5 {
		waits := func() bool {
			l := s.HTTPServer.served()[0]
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.held) == 1
		}
		await.Until(t, "the connection waits in Read", waits)
		conntest.Send(t, conn, hello[:2])
		conntest.Send(t, conn, hello[2:])
		r, err := http.ReadResponse(in, nil)
		check.OK(t, err)
		io.Copy(io.Discard, r.Body)
		await.Until(t, "the connection waits in Read", waits)
	}
	if n := s.Stats().Parked; n != 0 {
		t.Fatalf("%d parked", n)
	}
	check.OK(t, s.Shutdown(t.Context()))
	if n := s.closedCount(1); n != 1 {
		t.Fatal("the connection is not closed when Shutdown has returned")
	}
}

// registerElsewhere makes another port register the connections of a server.
func registerElsewhere(t testing.TB, s *http.Server) {
	port, err := socknotify.New[int]()
	check.OK(t, err)
	t.Cleanup(func() { port.Close() })
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		regs := []socknotify.Registration[int]{{Conn: conn.(*net.TCPConn), Op: socknotify.OpEnable,
			Trigger: socknotify.TriggerEdge}}
		port.Process(regs, nil, 0)
		if regs[0].Result != nil {
			t.Error(regs[0].Result)
		}
		return ctx
	}
}

// A hook may call methods of the server, also during Shutdown.
func TestHTTPHookCallsServer(t *testing.T) {
	var server *HTTPServer
	calls := make(chan http.ConnState, 100)
	s := newTestServer(t, func(s *HTTPServer) {
		server = s
		note := s.Server.ConnState
		s.Server.ConnState = func(conn net.Conn, state http.ConnState) {
			server.Server.RegisterOnShutdown(func() {}) // takes the lock of net/http
			server.Stats()
			note(conn, state)
			calls <- state
		}
	}, nil)
	for range 5 {
		s.request()
	}
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 5 })
	check.OK(t, s.Shutdown(t.Context()))
	if n := s.closedCount(5); n != 5 {
		t.Fatalf("%d closed when Shutdown returned", n)
	}
}

// onlyStates returns the states of the only connection.
func (s *testServer) onlyStates() (states []http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) != 1 {
		s.t.Errorf("%d connections", len(s.states))
	}
	for _, states = range s.states {
	}
	return slices.Clone(states)
}

// connCount returns the number of connections so far.
func (s *testServer) connCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states)
}

// closedCount returns the number of closed connections, and verifies the order of the states.
func (s *testServer) closedCount(n int) (closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, states := range s.states {
		last := states[len(states)-1]
		if last == http.StateClosed {
			closed++
		}
		if slices.Contains(states[:len(states)-1], http.StateClosed) || slices.Contains(states[1:], http.StateNew) {
			s.t.Errorf("%v: %v", conn.RemoteAddr(), states)
		}
	}
	return closed
}

// request makes a connection, sends one request, and leaves the connection idle.
func (s *testServer) request() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	check.OK(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	return conn, in
}

// ask sends a request and reads the response.
func (s *testServer) ask(conn net.Conn, in *bufio.Reader) {
	s.t.Helper()
	conntest.Send(s.t, conn, hello)
	r, err := http.ReadResponse(in, nil)
	check.OK(s.t, err)
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "hello\n" {
		s.t.Fatalf("%q, %v", body, err)
	}
}

// Idle connections need no goroutine.
func TestHTTPIdleGoroutines(t *testing.T) {
	s := newTestServer(t, nil, nil)
	const conns = 200
	s.request()
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	before := runtime.NumGoroutine()
	for range conns {
		s.request()
	}
	await.Until(t, "parked", func() bool { return s.Stats().Parked == conns+1 })
	await.Until(t, "no goroutine", func() bool { return runtime.NumGoroutine() <= before+max(2, runtime.GOMAXPROCS(0)) })
}

func TestHTTPShutdown(t *testing.T) {
	for name, end := range map[string]func(*testServer) error{
		"ours":       func(s *testServer) error { return s.Shutdown(t.Context()) },
		"net/http's": func(s *testServer) error { return s.Server.Shutdown(t.Context()) },
		"Close":      (*testServer).closeServer,
	} {
		t.Run(name, func(t *testing.T) {
			entered, release := make(chan struct{}), make(chan struct{})
			s := newTestServer(t, func(s *HTTPServer) {
				inner := s.Server.Handler
				s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						close(entered)
						<-release
					}
					inner.ServeHTTP(w, r)
				})
			}, nil)
			var ins []*bufio.Reader
			for range 5 {
				_, in := s.request()
				ins = append(ins, in)
			}
			active, in := s.request()
			await.Until(t, "parked", func() bool { return s.Stats().Parked == 6 })
			conntest.Send(t, active, request("GET", "/slow"))
			await.Value(t, entered)
			ended := make(chan error, 1)
			go func() { ended <- end(s) }()
			for _, in := range ins {
				if _, err := in.ReadByte(); err != io.EOF {
					t.Fatal(err)
				}
			}
			if name != "Close" {
				check.Empty(t, ended)
				close(release)
				r, err := http.ReadResponse(in, nil)
				check.OK(t, err)
				if r.StatusCode != http.StatusNotFound {
					t.Fatal(r.Status)
				}
				check.OK(t, await.Value(t, ended))
			} else {
				check.OK(t, await.Value(t, ended))
				if _, err := in.ReadByte(); err == nil {
					t.Fatal("got an answer, want none")
				}
				close(release)
			}
			await.Until(t, "all closed", func() bool { return s.closedCount(6) == 6 })
		})
	}
}

func (s *testServer) closeServer() error { return s.HTTPServer.Close() }

func TestHTTPKeepAlivesOff(t *testing.T) {
	s := newTestServer(t, nil, nil)
	_, in := s.request()
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	s.SetKeepAlivesEnabled(false)
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	_, in = s.request()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	await.Until(t, "all closed", func() bool { return s.closedCount(2) == 2 })
	s.SetKeepAlivesEnabled(true)
	s.request()
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
}

// When a timeout ends a connection, the state and the bytes are the same as with net/http.
func TestHTTPTimeouts(t *testing.T) {
	t.Parallel()                  // it waits
	const short = 2 * time.Second // longer than any step of a client
	for _, c := range []struct {
		name  string
		set   func(*http.Server)
		steps []step
	}{
		{"idle", func(s *http.Server) { s.IdleTimeout = short },
			[]step{sends(hello), answers("GET", 1), readToEnd}},
		{"idle, for ReadTimeout", func(s *http.Server) { s.ReadTimeout = short },
			[]step{sends(hello), answers("GET", 1), readToEnd}},
		{"idle, after three bytes", func(s *http.Server) { s.IdleTimeout = short; s.ReadHeaderTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), waitIdle, sendAndWait("GET"), readToEnd}},
		{"a slow head", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), waitIdle, sendAndWait("GET /"), readToEnd}},
		{"a slow head in two parts", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), waitIdle, sendAndWait("GET /"), sendAndWait("hello"), readToEnd}},
		{"a slow body", func(s *http.Server) { s.ReadTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), waitIdle, sendAndWait(request("POST", "/echo", "Content-Length: 9") + "some"), readToEnd}},
		{"none while idle", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), waitIdle,
				// net/http's time is real, and nothing tells that a timeout has not passed.
				func(*exchangeRun) { time.Sleep(2 * short) }, sends(hello), answers("GET", 1), waitIdle}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits for timeouts
			stock := newExchangeServer(t, false, false, "", 0, c.set)
			want, wantStates := stock.run(t, c.steps)
			for name, linger := range map[string]time.Duration{"at once": -1, "lingers": time.Millisecond} {
				r := newExchangeServer(t, false, true, "", linger, c.set)
				got, states := r.run(t, c.steps)
				if got != want || !slices.Equal(states, wantStates) {
					t.Errorf("%s: got\n%q %v, want\n%q %v", name, got, states, want, wantStates)
				}
			}
		})
	}
}

// The hooks receive one connection of a standard library type during all sessions, and ConnContext is called once.
func TestHTTPHooks(t *testing.T) {
	var contexts []net.Conn
	s := newTestServer(t, func(s *HTTPServer) {
		s.Server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			if ctx.Value(http.ServerContextKey) != s.Server || ctx.Value(baseKey{}) != "base" {
				t.Error("not the server's context")
			}
			contexts = append(contexts, conn)
			return ctx
		}
		s.Server.BaseContext = func(ln net.Listener) context.Context {
			if _, ok := ln.(*net.TCPListener); !ok {
				t.Errorf("BaseContext receives a %T", ln)
			}
			return context.WithValue(context.Background(), baseKey{}, "base")
		}
	}, nil)
	conn, in := s.request()
	for range 4 {
		await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
		s.ask(conn, in)
	}
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	conn.Close()
	await.Until(t, "closed", func() bool { return s.closedCount(1) == 1 })
	want := []http.ConnState{http.StateNew}
	for range 5 {
		want = append(want, http.StateActive, http.StateIdle)
	}
	want = append(want, http.StateClosed)
	if got := s.onlyStates(); !slices.Equal(got, want) {
		t.Fatal(got)
	}
	if len(contexts) != 1 {
		t.Fatal(contexts)
	}
	if _, ok := contexts[0].(*net.TCPConn); !ok {
		t.Fatalf("%T", contexts[0])
	}
}

type baseKey struct{}

func TestHTTPHijackedConn(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	s := newTestServer(t, func(s *HTTPServer) {
		inner := s.Server.Handler
		s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/take" {
				inner.ServeHTTP(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
			}
			hijacked <- conn
		})
	}, nil)
	l := newLot(t, Config{})
	conn, _ := s.request()
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	conntest.Send(t, conn, request("GET", "/take"))
	taken := await.Value(t, hijacked)
	defer taken.Close()
	if _, ok := taken.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
		t.Fatalf("%T", taken)
	}
	f, outcomes := conntest.Reader()
	check.OK(t, l.Park(taken, f))
	conntest.Send(t, conn, "raw")
	if o := await.Value(t, outcomes); o.Text != "raw" || o.Err != nil {
		t.Fatalf("%+v", o)
	}
	if taken.(inSession).self().start != nil {
		t.Error("the session keeps a buffer")
	}
}

// A connection that cannot be parked is served by a goroutine. The log names its type once, and says why.
func TestHTTPUnparkable(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(net.Conn) net.Conn
		want []string
	}{
		"opaque":       {conntest.Opaque, []string{"type=conntest.OpaqueConn", "set Unwrap"}},
		"hides errors": {func(c net.Conn) net.Conn { return &conntest.UnfitConn{Conn: c} }, []string{"type=*conntest.UnfitConn", "own error", "os.ErrDeadlineExceeded"}},
	} {
		for _, linger := range []time.Duration{-1, time.Millisecond} {
			t.Run(fmt.Sprint(name, linger), func(t *testing.T) {
				var logged conntest.Log
				var lot *Lot
				s := newTestServer(t, func(s *HTTPServer) {
					s.Linger = linger
					s.OnLot = func(l *Lot) { lot = l }
					s.Server.ErrorLog = log.New(&logged, "log: ", 0)
				}, func(s *HTTPServer, ln net.Listener) error {
					return s.Serve(conntest.Wrapping(ln, c.wrap))
				})
				for i := range 2 {
					conn, in := s.request()
					for range 5 {
						s.ask(conn, in)
					}
					await.Until(t, "counted", func() bool { return lot.Stats().Unparkable == uint64(i+1) })
				}
				if s.Stats().Parked != 0 {
					t.Error("parked")
				}
				got := logged.String()
				if strings.Count(got, "not parked") != 1 || !strings.HasPrefix(got, "log: msg=") {
					t.Errorf("logged %s", got)
				}
				for _, part := range c.want {
					if !strings.Contains(got, part) {
						t.Errorf("the log does not say %q: %s", part, got)
					}
				}
			})
		}
	}
}

// A flakyListener is a listener whose first Accepts fail with a temporary error.
type flakyListener struct {
	net.Listener
	left int
}

type temporaryError struct{ error }

func (temporaryError) Timeout() bool   { return false }
func (temporaryError) Temporary() bool { return true }

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.left > 0 {
		l.left--
		return nil, temporaryError{errors.New("temporary error")}
	}
	return l.Listener.Accept()
}

func TestHTTPAcceptErrors(t *testing.T) {
	s := newTestServer(t, nil, func(s *HTTPServer, ln net.Listener) error { return s.Serve(&flakyListener{ln, 3}) })
	s.request()

	broken := &HTTPServer{Server: &http.Server{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	ln.Close()
	check.Is(t, broken.Serve(ln), net.ErrClosed)
	for _, err := range []error{
		(&HTTPServer{}).Serve(ln), (&HTTPServer{}).ServeTLS(ln, "", ""),
		(&HTTPServer{}).ListenAndServe(), (&HTTPServer{}).ListenAndServeTLS("", ""),
	} {
		check.Is(t, err, socknotify.ErrInvalid) // no Server
	}
}

func serveTLS(s *HTTPServer, ln net.Listener) error { return s.ServeTLS(ln, "", "") }

func withTLS(t testing.TB) func(*HTTPServer) {
	return func(s *HTTPServer) {
		s.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	}
}

// HTTP/2 connections are served by net/http, which is counted, and said once.
func TestHTTP2(t *testing.T) {
	type served struct {
		protos []string
		states []http.ConnState
	}
	visit := func(address string) []string {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer tr.CloseIdleConnections()
		var protos []string
		for range 3 {
			r, err := (&http.Client{Transport: tr}).Get("https://" + address + "/hello")
			check.OK(t, err)
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			protos = append(protos, r.Proto)
		}
		return protos
	}
	var stock served
	{
		closed := make(chan struct{})
		srv := &http.Server{Handler: httpcorpus.Handler(),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}},
			ConnState: func(_ net.Conn, state http.ConnState) {
				if stock.states = append(stock.states, state); state == http.StateClosed {
					close(closed)
				}
			}}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		check.OK(t, err)
		go srv.ServeTLS(ln, "", "")
		stock.protos = visit(ln.Addr().String())
		await.Value(t, closed)
		check.OK(t, srv.Shutdown(t.Context()))
	}
	lines := make(chan string, 100)
	s := newTestServer(t, withTLS(t), serveTLS)
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(lineWriter(lines), nil)))
	defer func() { // SetDefault has set the output of package log too
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	protos := visit(s.address)
	await.Until(t, "closed", func() bool { return s.closedCount(1) == 1 })
	if states := s.onlyStates(); !slices.Equal(protos, stock.protos) || !slices.Equal(states, stock.states) ||
		protos[0] != "HTTP/2.0" {
		t.Fatalf("%v %v, want %v %v", protos, states, stock.protos, stock.states)
	}
	if n := s.Stats().UnparkedHTTP2; n != 1 {
		t.Errorf("%d connections of HTTP/2 were counted", n)
	}
	again, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	go s.ServeTLS(again, "", "")
	visit(again.Addr().String())
	said := 0
	for range len(lines) {
		if strings.Contains(<-lines, "set HTTPServer.HTTP2") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d lines say that HTTP/2 is not parked", said)
	}
}

// A lineWriter sends what is written, as long as the channel has room.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}

// Serve supports a listener of package tls.
func TestHTTPOverTLSListener(t *testing.T) {
	s := newTestServer(t, nil, func(s *HTTPServer, ln net.Listener) error {
		return s.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}))
	})
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true})
	check.OK(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		s.ask(conn, in)
		await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	}
}

// A part of a TLS record makes the connection readable, but not the start of a request. It is parked again.
func TestHTTPPartialRecord(t *testing.T) {
	s := newTestServer(t, withTLS(t), serveTLS)
	raw, err := net.Dial("tcp", s.address)
	check.OK(t, err)
	h := &conntest.HeldWriter{Conn: raw}
	conn := tls.Client(h, &tls.Config{InsecureSkipVerify: true})
	defer conn.Close()
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
	h.On = true
	conntest.Send(t, conn, hello[:10])
	conntest.Send(t, conn, hello[10:]+hello)
	for i := range h.Held {
		if _, err := raw.Write(h.Held[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r, err := http.ReadResponse(in, nil)
		check.OK(t, err)
		io.Copy(io.Discard, r.Body)
	}
	await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
}

// The first bytes of a request arrive as several records in one segment. When the first record is read, package tls
// holds the others, and the kernel reports nothing for them.
func TestHTTPRecordsAhead(t *testing.T) {
	s := newTestServer(t, withTLS(t), serveTLS)
	raw, err := net.Dial("tcp", s.address)
	check.OK(t, err)
	raw.SetDeadline(time.Now().Add(2 * conntest.Timeout))
	h := &conntest.HeldWriter{Conn: raw}
	conn := tls.Client(h, &tls.Config{InsecureSkipVerify: true})
	defer conn.Close()
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	for _, cuts := range [][]int{{1}, {2, 3}, {1, 2, 3}, {3, 30}} {
		await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
		h.On = true
		from := 0
		for _, to := range append(cuts, len(hello)) {
			conntest.Send(t, conn, hello[from:to])
			from = to
		}
		h.On = false
		if _, err := raw.Write(h.Held); err != nil {
			t.Fatal(err)
		}
		h.Held = nil
		r, err := http.ReadResponse(in, nil)
		check.OK(t, err)
		io.Copy(io.Discard, r.Body)
	}
}

// ErrorLog is read when something is logged, as by net/http: the program may set it after Serve was
// called.
func TestHTTPErrorLogChanged(t *testing.T) {
	for _, first := range []*log.Logger{nil, log.New(io.Discard, "", 0)} {
		var logged conntest.Log
		s := newTestServer(t, func(s *HTTPServer) {
			s.Server.ErrorLog = first
			s.OnLot = func(*Lot) { s.Server.ErrorLog = log.New(&logged, "log: ", 0) }
		}, func(s *HTTPServer, ln net.Listener) error {
			return s.Serve(conntest.Wrapping(ln, conntest.Opaque))
		})
		s.request()
		if got := logged.String(); !strings.HasPrefix(got, "log: msg=") {
			t.Errorf("logged %q", got)
		}
	}
}

// Failed handshakes cause the same bytes, states and log messages as with net/http.
func TestHTTPBadHandshake(t *testing.T) {
	for _, text := range []string{hello, "nonsense", "", "\x16\x03\x01"} {
		var logs [2]strings.Builder
		var got [2]string
		var states [2][]http.ConnState
		for i := range 2 {
			r := newExchangeServer(t, true, i == 1, "", -1, func(srv *http.Server) { srv.ErrorLog = log.New(&logs[i], "", 0) })
			r.secure = false // the client
			got[i], states[i] = r.run(t, []step{sends(text)})
		}
		port := func(s string) string { // the client's port differs
			from := strings.Index(s, "127.0.0.1:")
			if from < 0 {
				return s
			}
			return s[:from] + s[from+strings.Index(s[from:], ": "):]
		}
		if got[0] != got[1] || !slices.Equal(states[0], states[1]) || port(logs[0].String()) != port(logs[1].String()) {
			t.Errorf("%q: %q %v %q, want %q %v %q", text, got[1], states[1], logs[1].String(), got[0], states[0], logs[0].String())
		}
	}
}

// Shutdown closes a connection whose handshake takes longer than the time for first requests.
func TestHTTPShutdownInHandshake(t *testing.T) {
	clock := testclock.Install(t)
	s := newTestServer(t, withTLS(t), serveTLS)
	conn, err := net.Dial("tcp", s.address)
	check.OK(t, err)
	defer conn.Close()
	await.Until(t, "accepted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.states) == 1
	})
	result, end := shutDown(t, clock, func() error { return s.Shutdown(t.Context()) })
	await.Until(t, "Shutdown has begun", func() bool { return !s.Ready() })
	check.Empty(t, result)
	end()
	await.Until(t, "closed", func() bool { return s.closedCount(1) == 1 })
}

// Many clients connect, send requests with various pauses, and disconnect.
func TestHTTPManyClients(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			set, serve := func(*HTTPServer) {}, (*HTTPServer).Serve
			if secure {
				set, serve = withTLS(t), serveTLS
			}
			s := newTestServer(t, func(s *HTTPServer) { set(s); s.Linger = time.Millisecond }, serve)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
					defer tr.CloseIdleConnections()
					scheme := "http://"
					if secure {
						scheme = "https://"
					}
					for j := range 30 {
						r, err := (&http.Client{Transport: tr}).Post(scheme+s.address+"/echo", "text/plain",
							strings.NewReader(strings.Repeat("x", 100*j)))
						if err != nil {
							t.Error(err)
							return
						}
						body, err := io.ReadAll(r.Body)
						r.Body.Close()
						if err != nil || !strings.HasPrefix(string(body), fmt.Sprint(100*j, " <nil> ")) {
							t.Errorf("%.20q, %v", body, err)
						}
						await.Pause(time.Duration((i+j)%5) * 500 * time.Microsecond)
					}
				})
			}
			all.Wait()
			// There may be more than twenty connections: a client closes a connection on which a
			// request took long.
			await.Until(t, "all closed", func() bool { return s.closedCount(20) == s.connCount() })
		})
	}
}

// If serving fails, the error is returned and the listener is closed, as with net/http.
func TestHTTPServeErrors(t *testing.T) {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		check.OK(t, err)
		return ln
	}
	for name, serve := range map[string]func(*HTTPServer, net.Listener) error{
		"Serve":    (*HTTPServer).Serve,
		"ServeTLS": func(s *HTTPServer, ln net.Listener) error { return s.ServeTLS(ln, "", "") },
		"ListenAndServe": func(s *HTTPServer, ln net.Listener) error {
			ln.Close()
			return s.ListenAndServe()
		},
		"ListenAndServeTLS": func(s *HTTPServer, ln net.Listener) error {
			ln.Close()
			return s.ListenAndServeTLS("", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ln := listen()
			s := &HTTPServer{}
			check.Is(t, serve(s, ln), socknotify.ErrInvalid)
			s.SetKeepAlivesEnabled(false)
			check.OK(t, s.Shutdown(t.Context()))
			check.OK(t, s.Close())
			ln.Close()

			ln = listen()
			config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
			s = &HTTPServer{Backend: "none such", Server: &http.Server{Addr: ln.Addr().String(), TLSConfig: config}}
			if err := serve(s, ln); err == nil || !strings.Contains(err.Error(), "none such") {
				t.Fatalf("got %v", err)
			}
			ln, err := net.Listen("tcp", s.Server.Addr)
			check.OK(t, err)
			ln.Close()
		})
	}
}
