package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
)

// A site is one of our servers, and what its hooks were told.
type site struct {
	*HTTPServer
	t       testing.TB
	address string
	served  chan error

	mu     sync.Mutex
	states map[net.Conn][]http.ConnState
}

// newSite serves; set may change the server first, and serve how it is served.
func newSite(t testing.TB, set func(*HTTPServer), serve func(*HTTPServer, net.Listener) error) *site {
	t.Helper()
	s := &site{t: t, served: make(chan error, 1), states: make(map[net.Conn][]http.ConnState)}
	s.HTTPServer = &HTTPServer{Linger: -1, Server: &http.Server{
		Handler:  exchangeHandler(),
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
	must(t, err)
	s.address = ln.Addr().String()
	if serve == nil {
		serve = (*HTTPServer).Serve
	}
	go func() { s.served <- serve(s.HTTPServer, ln) }()
	t.Cleanup(func() {
		s.Close()
		must(t, s.Shutdown(context.Background()))
		wantErr(t, get(t, s.served), http.ErrServerClosed)
	})
	return s
}

// A connection that lingers is parked in the end, and not before it has.
func TestHTTPLinger(t *testing.T) {
	s := newSite(t, func(s *HTTPServer) { s.Linger = 30 * time.Millisecond }, nil)
	conn, in := s.visit()
	for range 3 {
		for range 20 {
			s.ask(conn, in)
		}
		until(t, "parked", func() bool { return s.Parked() == 1 })
	}
	s.HTTPServer.served()[0].lot.evict()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}

	busy := newSite(t, func(s *HTTPServer) { s.Linger = time.Hour }, nil)
	conn, in = busy.visit()
	for range 200 {
		busy.ask(conn, in)
	}
	if n := busy.HTTPServer.served()[0].lot.Stats().Parks; n != 0 {
		t.Fatalf("parked %d times", n)
	}
}

// A connection that cannot be registered, here because another port has it, is served without parking.
func TestHTTPRefusedParking(t *testing.T) {
	port, err := socknotify.New[int]()
	must(t, err)
	defer port.Close()
	s := newSite(t, func(s *HTTPServer) {
		s.Server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			regs := []socknotify.Registration[int]{{Conn: conn.(*net.TCPConn), Op: socknotify.OpEnable,
				Trigger: socknotify.TriggerEdge}}
			port.Process(regs, nil, 0)
			if regs[0].Result != nil {
				t.Error(regs[0].Result)
			}
			return ctx
		}
	}, nil)
	conn, in := s.visit()
	for range 5 {
		waits := func() bool {
			l := s.HTTPServer.served()[0]
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.young) == 1
		}
		until(t, "it waits", waits)
		send(t, conn, hello[:2])
		send(t, conn, hello[2:])
		r, err := http.ReadResponse(in, nil)
		must(t, err)
		io.Copy(io.Discard, r.Body)
		until(t, "it waits", waits)
	}
	if n := s.Parked(); n != 0 {
		t.Fatalf("%d parked", n)
	}
	must(t, s.Shutdown(t.Context()))
	if n := s.ends(1); n != 1 {
		t.Fatal("not closed when Shutdown returned")
	}
}

// A hook may call the server, also while it is closed.
func TestHTTPHookCallsTheServer(t *testing.T) {
	var site *HTTPServer
	calls := make(chan http.ConnState, 100)
	s := newSite(t, func(s *HTTPServer) {
		site = s
		note := s.Server.ConnState
		s.Server.ConnState = func(conn net.Conn, state http.ConnState) {
			site.Server.RegisterOnShutdown(func() {}) // which takes net/http's lock
			site.Parked()
			note(conn, state)
			calls <- state
		}
	}, nil)
	for range 5 {
		s.visit()
	}
	until(t, "parked", func() bool { return s.Parked() == 5 })
	must(t, s.Shutdown(t.Context()))
	if n := s.ends(5); n != 5 {
		t.Fatalf("%d closed when Shutdown returned", n)
	}
}

// only are the states of the only connection there was.
func (s *site) only() (states []http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) != 1 {
		s.t.Errorf("%d connections", len(s.states))
	}
	for _, states = range s.states {
	}
	return slices.Clone(states)
}

// came is how many connections there have been.
func (s *site) came() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states)
}

func (s *site) ends(n int) (closed int) {
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

// visit makes a connection and one request on it, and leaves it idle.
func (s *site) visit() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * soon))
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	return conn, in
}

func (s *site) ask(conn net.Conn, in *bufio.Reader) {
	s.t.Helper()
	send(s.t, conn, hello)
	r, err := http.ReadResponse(in, nil)
	must(s.t, err)
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "hello\n" {
		s.t.Fatalf("%q, %v", body, err)
	}
}

// Idle connections hold no goroutine.
func TestHTTPHoldsNoGoroutine(t *testing.T) {
	s := newSite(t, nil, nil)
	const conns = 200
	s.visit()
	until(t, "parked", func() bool { return s.Parked() == 1 })
	before := runtime.NumGoroutine()
	for range conns {
		s.visit()
	}
	until(t, "parked", func() bool { return s.Parked() == conns+1 })
	until(t, "no goroutine", func() bool { return runtime.NumGoroutine() <= before+runtime.GOMAXPROCS(0) })
}

func TestHTTPShutdown(t *testing.T) {
	for name, end := range map[string]func(*site) error{
		"ours":       func(s *site) error { return s.Shutdown(t.Context()) },
		"net/http's": func(s *site) error { return s.Server.Shutdown(t.Context()) },
		"Close":      (*site).closes,
	} {
		t.Run(name, func(t *testing.T) {
			entered, release := make(chan struct{}), make(chan struct{})
			s := newSite(t, func(s *HTTPServer) {
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
				_, in := s.visit()
				ins = append(ins, in)
			}
			active, in := s.visit()
			until(t, "parked", func() bool { return s.Parked() == 6 })
			send(t, active, request("GET", "/slow"))
			get(t, entered)
			ended := make(chan error, 1)
			go func() { ended <- end(s) }()
			for _, in := range ins {
				if _, err := in.ReadByte(); err != io.EOF {
					t.Fatal(err)
				}
			}
			if name != "Close" {
				none(t, ended)
				close(release)
				r, err := http.ReadResponse(in, nil)
				must(t, err)
				if r.StatusCode != http.StatusNotFound {
					t.Fatal(r.Status)
				}
				must(t, get(t, ended))
			} else {
				must(t, get(t, ended))
				if _, err := in.ReadByte(); err == nil {
					t.Fatal("an answer")
				}
				close(release)
			}
			until(t, "all closed", func() bool { return s.ends(6) == 6 })
		})
	}
}

func (s *site) closes() error { return s.HTTPServer.Close() }

func TestHTTPKeepAlivesOff(t *testing.T) {
	s := newSite(t, nil, nil)
	_, in := s.visit()
	until(t, "parked", func() bool { return s.Parked() == 1 })
	s.SetKeepAlivesEnabled(false)
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	_, in = s.visit()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	until(t, "all closed", func() bool { return s.ends(2) == 2 })
	s.SetKeepAlivesEnabled(true)
	s.visit()
	until(t, "parked", func() bool { return s.Parked() == 1 })
}

// Time-outs end connections in the state, and with the bytes, that stock net/http ends them with.
func TestHTTPTimeouts(t *testing.T) {
	const short = time.Second // nothing that a client does meanwhile takes as long
	for _, c := range []struct {
		name  string
		set   func(*http.Server)
		steps []step
	}{
		{"idle", func(s *http.Server) { s.IdleTimeout = short },
			[]step{sends(hello), answers("GET", 1), toTheEnd}},
		{"idle, for ReadTimeout", func(s *http.Server) { s.ReadTimeout = short },
			[]step{sends(hello), answers("GET", 1), toTheEnd}},
		{"idle, after three bytes", func(s *http.Server) { s.IdleTimeout = short; s.ReadHeaderTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), rest, part("GET"), toTheEnd}},
		{"a slow head", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), rest, part("GET /"), toTheEnd}},
		{"a slow head in two parts", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), rest, part("GET /"), part("hello"), toTheEnd}},
		{"a slow body", func(s *http.Server) { s.ReadTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), rest, part(request("POST", "/echo", "Content-Length: 9") + "some"), toTheEnd}},
		{"none while idle", func(s *http.Server) { s.ReadHeaderTimeout = short; s.IdleTimeout = time.Hour },
			[]step{sends(hello), answers("GET", 1), rest,
				func(*talk) { time.Sleep(2 * short) }, sends(hello), answers("GET", 1), rest}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits
			stock := newRig(t, false, false, "", 0, c.set)
			want, wantStates := stock.talk(t, c.steps)
			for name, linger := range map[string]time.Duration{"at once": -1, "lingers": time.Millisecond} {
				r := newRig(t, false, true, "", linger, c.set)
				got, states := r.talk(t, c.steps)
				if got != want || !slices.Equal(states, wantStates) {
					t.Errorf("%s: got\n%q %v, want\n%q %v", name, got, states, want, wantStates)
				}
			}
		})
	}
}

// The hooks are given one connection, of the standard library's types, through all its sessions, and
// ConnContext is asked once.
func TestHTTPHooks(t *testing.T) {
	var contexts []net.Conn
	s := newSite(t, func(s *HTTPServer) {
		s.Server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			if ctx.Value(http.ServerContextKey) != s.Server || ctx.Value(baseKey{}) != "base" {
				t.Error("not the server's context")
			}
			contexts = append(contexts, conn)
			return ctx
		}
		s.Server.BaseContext = func(ln net.Listener) context.Context {
			if _, ok := ln.(*net.TCPListener); !ok {
				t.Errorf("BaseContext is given a %T", ln)
			}
			return context.WithValue(context.Background(), baseKey{}, "base")
		}
	}, nil)
	conn, in := s.visit()
	for range 4 {
		until(t, "parked", func() bool { return s.Parked() == 1 })
		s.ask(conn, in)
	}
	until(t, "parked", func() bool { return s.Parked() == 1 })
	conn.Close()
	until(t, "closed", func() bool { return s.ends(1) == 1 })
	want := []http.ConnState{http.StateNew}
	for range 5 {
		want = append(want, http.StateActive, http.StateIdle)
	}
	want = append(want, http.StateClosed)
	if got := s.only(); !slices.Equal(got, want) {
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
	s := newSite(t, func(s *HTTPServer) {
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
	conn, _ := s.visit()
	until(t, "parked", func() bool { return s.Parked() == 1 })
	send(t, conn, request("GET", "/take"))
	taken := get(t, hijacked)
	defer taken.Close()
	if _, ok := taken.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
		t.Fatalf("%T", taken)
	}
	f, outcomes := reader()
	must(t, l.Park(taken, f))
	send(t, conn, "raw")
	if o := get(t, outcomes); o.text != "raw" || o.err != nil {
		t.Fatalf("%+v", o)
	}
	if taken.(inSession).self().start != nil {
		t.Error("it keeps a buffer")
	}
}

// bare is a connection without a descriptor, as limiting listeners make them.
type bare struct{ net.Conn }

type bareListener struct{ net.Listener }

func (l bareListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return bare{conn}, nil
}

func TestHTTPWithoutDescriptor(t *testing.T) {
	s := newSite(t, nil, func(s *HTTPServer, ln net.Listener) error { return s.Serve(bareListener{ln}) })
	conn, in := s.visit()
	for range 5 {
		s.ask(conn, in)
	}
	if s.Parked() != 0 {
		t.Fatal("parked")
	}
}

// faulty fails its first accepts.
type faulty struct {
	net.Listener
	left int
}

type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

func (l *faulty) Accept() (net.Conn, error) {
	if l.left > 0 {
		l.left--
		return nil, passing{errors.New("a passing fault")}
	}
	return l.Listener.Accept()
}

func TestHTTPAcceptErrors(t *testing.T) {
	s := newSite(t, nil, func(s *HTTPServer, ln net.Listener) error { return s.Serve(&faulty{ln, 3}) })
	s.visit()

	broken := &HTTPServer{Server: &http.Server{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ln.Close()
	wantErr(t, broken.Serve(ln), net.ErrClosed)
	for _, err := range []error{
		(&HTTPServer{}).Serve(ln), (&HTTPServer{}).ServeTLS(ln, "", ""),
		(&HTTPServer{}).ListenAndServe(), (&HTTPServer{}).ListenAndServeTLS("", ""),
	} {
		wantErr(t, err, socknotify.ErrInvalid) // no Server
	}
}

func serveTLS(s *HTTPServer, ln net.Listener) error { return s.ServeTLS(ln, "", "") }

func withTLS(t testing.TB) func(*HTTPServer) {
	return func(s *HTTPServer) {
		s.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	}
}

// HTTP/2 is net/http's own.
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
			must(t, err)
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			protos = append(protos, r.Proto)
		}
		return protos
	}
	var stock served
	{
		closed := make(chan struct{})
		srv := &http.Server{Handler: exchangeHandler(),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
			ConnState: func(_ net.Conn, state http.ConnState) {
				if stock.states = append(stock.states, state); state == http.StateClosed {
					close(closed)
				}
			}}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		go srv.ServeTLS(ln, "", "")
		stock.protos = visit(ln.Addr().String())
		get(t, closed)
		must(t, srv.Shutdown(t.Context()))
	}
	s := newSite(t, withTLS(t), serveTLS)
	protos := visit(s.address)
	until(t, "closed", func() bool { return s.ends(1) == 1 })
	if states := s.only(); !slices.Equal(protos, stock.protos) || !slices.Equal(states, stock.states) ||
		protos[0] != "HTTP/2.0" {
		t.Fatalf("%v %v, want %v %v", protos, states, stock.protos, stock.states)
	}
}

// A listener of package tls serves as well as ServeTLS.
func TestHTTPOverTLSListener(t *testing.T) {
	s := newSite(t, nil, func(s *HTTPServer, ln net.Listener) error {
		return s.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
	})
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		s.ask(conn, in)
		until(t, "parked", func() bool { return s.Parked() == 1 })
	}
}

// A part of a TLS record, with which the connection leaves the lot for a moment.
func TestHTTPPartialRecord(t *testing.T) {
	s := newSite(t, withTLS(t), serveTLS)
	raw, err := net.Dial("tcp", s.address)
	must(t, err)
	h := &hoard{Conn: raw}
	conn := tls.Client(h, &tls.Config{InsecureSkipVerify: true})
	defer conn.Close()
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	until(t, "parked", func() bool { return s.Parked() == 1 })
	h.on = true
	send(t, conn, hello[:10])
	send(t, conn, hello[10:]+hello)
	for i := range h.held {
		if _, err := raw.Write(h.held[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r, err := http.ReadResponse(in, nil)
		must(t, err)
		io.Copy(io.Discard, r.Body)
	}
	until(t, "parked", func() bool { return s.Parked() == 1 })
}

// The first bytes of a request in records of their own, all in one segment: package tls holds the others when the
// first is read, and the kernel reports nothing more.
func TestHTTPRecordsAhead(t *testing.T) {
	s := newSite(t, withTLS(t), serveTLS)
	raw, err := net.Dial("tcp", s.address)
	must(t, err)
	raw.SetDeadline(time.Now().Add(2 * soon))
	h := &hoard{Conn: raw}
	conn := tls.Client(h, &tls.Config{InsecureSkipVerify: true})
	defer conn.Close()
	in := bufio.NewReader(conn)
	s.ask(conn, in)
	for _, cuts := range [][]int{{1}, {2, 3}, {1, 2, 3}, {3, 30}} {
		until(t, "parked", func() bool { return s.Parked() == 1 })
		h.on = true
		from := 0
		for _, to := range append(cuts, len(hello)) {
			send(t, conn, hello[from:to])
			from = to
		}
		h.on = false
		if _, err := raw.Write(h.held); err != nil {
			t.Fatal(err)
		}
		h.held = nil
		r, err := http.ReadResponse(in, nil)
		must(t, err)
		io.Copy(io.Discard, r.Body)
	}
}

// Failed handshakes give the same bytes, states and words in the log as stock's.
func TestHTTPBadHandshake(t *testing.T) {
	for _, text := range []string{hello, "nonsense", "", "\x16\x03\x01"} {
		var logs [2]strings.Builder
		var got [2]string
		var states [2][]http.ConnState
		for i := range 2 {
			r := newRig(t, true, i == 1, "", -1, func(srv *http.Server) { srv.ErrorLog = log.New(&logs[i], "", 0) })
			r.secure = false // the client
			got[i], states[i] = r.talk(t, []step{sends(text)})
		}
		port := func(s string) string { // the client's differs
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

// Shutdown does not wait for a handshake, nor does it leave one behind.
func TestHTTPShutdownInHandshake(t *testing.T) {
	s := newSite(t, withTLS(t), serveTLS)
	conn, err := net.Dial("tcp", s.address)
	must(t, err)
	defer conn.Close()
	until(t, "accepted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.states) == 1
	})
	must(t, s.Shutdown(t.Context()))
	until(t, "closed", func() bool { return s.ends(1) == 1 })
}

// Many clients that come and go, with all kinds of pauses.
func TestHTTPManyClients(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			set, serve := func(*HTTPServer) {}, (*HTTPServer).Serve
			if secure {
				set, serve = withTLS(t), serveTLS
			}
			s := newSite(t, func(s *HTTPServer) { set(s); s.Linger = time.Millisecond }, serve)
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
						time.Sleep(time.Duration((i+j)%5) * 500 * time.Microsecond)
					}
				})
			}
			all.Wait()
			// There may be more than twenty: a client gives a connection up whose request was long in writing.
			until(t, "all closed", func() bool { return s.ends(20) == s.came() })
		})
	}
}

// What cannot be served is told, and leaves no listener behind, as with net/http.
func TestHTTPCannotServe(t *testing.T) {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
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
			wantErr(t, serve(s, ln), socknotify.ErrInvalid)
			s.SetKeepAlivesEnabled(false)
			must(t, s.Shutdown(t.Context()))
			must(t, s.Close())
			ln.Close()

			ln = listen()
			config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
			s = &HTTPServer{Backend: "none such", Server: &http.Server{Addr: ln.Addr().String(), TLSConfig: config}}
			if err := serve(s, ln); err == nil || !strings.Contains(err.Error(), "none such") {
				t.Fatalf("got %v", err)
			}
			ln, err := net.Listen("tcp", s.Server.Addr)
			must(t, err)
			ln.Close()
		})
	}
}
