package park

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nethttp"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A poll is a server whose requests wait.
type poll struct {
	*testServer
	options SuspendOptions
	waits   chan *Suspended
	ends    chan error // the causes that then has found
	failed  chan error // what Suspend has returned
	answer  http.HandlerFunc
	secure  bool
}

func (p *poll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hello" {
		io.WriteString(w, "hello\n")
		return
	}
	var own *Suspended
	err := SuspendWith(w, r, p.options, func(q *Suspended) { own = q; p.waits <- q },
		func(w http.ResponseWriter, r *http.Request, q *Suspended) {
			if q != own {
				p.t.Error("then got another Suspended than register")
			}
			p.ends <- context.Cause(r.Context())
			p.answer(w, r)
		})
	if err != nil {
		p.failed <- err
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// The kinds of connections.
var pollKinds = []string{"plain", "TLS", "crypto/tls", "wrapped"}

// newPoll starts a server for connections of a kind. set, if not nil, configures it, and wrap, if
// not nil, is a middleware around it.
func newPoll(t testing.TB, kind string, set func(*poll),
	wrap func(http.Handler) http.Handler) *poll {
	t.Helper()
	p := &poll{waits: make(chan *Suspended, 1000), ends: make(chan error, 1000),
		failed: make(chan error, 1000), secure: kind == "TLS" || kind == "crypto/tls"}
	p.answer = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "answer\n") }
	serve := (*HTTPServer).Serve
	switch kind {
	case "TLS", "crypto/tls":
		serve = serveTLS
	case "opaque":
		serve = func(s *HTTPServer, ln net.Listener) error {
			return s.Serve(conntest.Wrapping(ln, conntest.Opaque))
		}
	case "wrapped":
		serve = func(s *HTTPServer, ln net.Listener) error {
			return s.Serve(conntest.Wrapping(ln, func(c net.Conn) net.Conn { return &countingConn{Conn: c} }))
		}
	}
	configure := func(s *HTTPServer) {
		if p.secure {
			withTLS(t)(s)
		}
		s.CryptoTLS = kind == "crypto/tls"
		p.testServer = &testServer{HTTPServer: s}
		if set != nil {
			set(p)
		}
		s.Server.Handler = p
		if wrap != nil {
			s.Server.Handler = wrap(p)
		}
	}
	p.testServer = newTestServer(t, configure, serve)
	return p
}

// dial returns a connection to the server.
func (p *poll) dial() (net.Conn, *bufio.Reader) {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.address)
	check.OK(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
	if p.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn, bufio.NewReader(conn)
}

// poll sends a request, and returns it when it waits.
func (p *poll) poll(conn net.Conn, text string) *Suspended {
	p.t.Helper()
	conntest.Send(p.t, conn, text)
	q := await.Value(p.t, p.waits)
	p.waitParked(q)
	return q
}

// waitParked waits until the connection of a waiting request is parked.
func (p *poll) waitParked(q *Suspended) {
	p.t.Helper()
	await.Until(p.t, "the request waits in the lot", func() bool {
		parked := false
		for _, l := range p.Lots() {
			l.engine.EvictAll(func(conn net.Conn) (stays bool) {
				parked = parked || conn == net.Conn(suspendedConn{q: q})
				return true
			})
		}
		return parked
	})
}

// answered reads an answer, and returns its status, its header and its body.
func answered(t testing.TB, in *bufio.Reader, method string) (int, http.Header, string) {
	t.Helper()
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	check.OK(t, err)
	body, err := io.ReadAll(r.Body)
	check.OK(t, err)
	if r.Close { // package http takes it away
		r.Header.Set("Connection", "close")
	}
	return r.StatusCode, r.Header, string(body)
}

func (p *poll) wantAnswer(in *bufio.Reader) {
	p.t.Helper()
	if status, _, body := answered(p.t, in, "GET"); status != http.StatusOK || body != "answer\n" {
		p.t.Fatalf("%d %q", status, body)
	}
}

// wantEnd verifies the cause with which then was called, and that it was called once.
func (p *poll) wantEnd(want error) {
	p.t.Helper()
	if got := await.Value(p.t, p.ends); !errors.Is(got, want) || (want == nil) != (got == nil) {
		p.t.Fatalf("then got %v, want %v", got, want)
	}
	check.Empty(p.t, p.ends)
}

var pollText = request("GET", "/poll")

// Requests wait without a goroutine, and are answered. To the hooks the connection is active until
// then.
func TestSuspend(t *testing.T) {
	for _, kind := range pollKinds {
		t.Run(kind, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				p := newPoll(t, kind, func(p *poll) { p.Backend = backend }, nil)
				conn, in := p.dial()
				for i := range 3 {
					q := p.poll(conn, pollText)
					st := p.Stats()
					if st.Suspended != 1 || st.Blocked != 0 || st.SuspendedBytes < 10 ||
						st.Calls != uint64(i+1) {
						t.Fatalf("%+v", st)
					}
					if !q.Resume() || q.Resume() {
						t.Fatal("Resume has not ended the wait once")
					}
					p.wantAnswer(in)
					p.wantEnd(nil)
					await.Until(t, "idle", func() bool { return p.Stats().Parked == 1 })
				}
				st := p.Stats()
				if st.Suspended != 0 || st.SuspendedBytes != 0 || st.Resumed != 3 ||
					st.WaitTime.Count() != 3 || st.Rejected != 0 {
					t.Fatalf("%+v", st)
				}
				want := []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateActive,
					http.StateIdle, http.StateActive, http.StateIdle}
				if got := p.onlyStates(); !slices.Equal(got, want) {
					t.Fatalf("%v, want %v", got, want)
				}
			})
		})
	}
}

// A request may be resumed before its handler has returned.
func TestSuspendResumeEarly(t *testing.T) {
	for _, kind := range pollKinds {
		t.Run(kind, func(t *testing.T) {
			release := make(chan struct{})
			late := false
			p := newPoll(t, kind, nil, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(w, r)
					if late {
						<-release
					}
				})
			})
			conn, in := p.dial()
			late = true
			conntest.Send(t, conn, pollText)
			q := await.Value(t, p.waits)
			if !q.Resume() || q.Resume() {
				t.Fatal("Resume has not ended the wait once")
			}
			check.Empty(t, p.ends)
			close(release)
			p.wantAnswer(in)
			p.wantEnd(nil)
		})
	}
	t.Run("in register", func(t *testing.T) {
		p := newPoll(t, "plain", nil, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				check.OK(t, Suspend(w, r, func(q *Suspended) { q.Resume() },
					func(w http.ResponseWriter, r *http.Request, _ *Suspended) { io.WriteString(w, "answer\n") }))
			})
		})
		conn, in := p.dial()
		for range 3 {
			conntest.Send(t, conn, pollText)
			p.wantAnswer(in)
		}
	})
}

// The timeout ends the wait, and the request can be answered.
func TestSuspendTimeout(t *testing.T) {
	for _, kind := range pollKinds {
		t.Run(kind, func(t *testing.T) {
			clock := testclock.Install(t)
			p := newPoll(t, kind, func(p *poll) { p.options.Timeout = time.Minute }, nil)
			conn, in := p.dial()
			q := p.poll(conn, pollText)
			clock.Advance(59 * time.Second)
			check.Empty(t, p.ends)
			if d := p.Stats().LongestWait; d < 58*time.Second || d > 60*time.Second {
				t.Fatalf("the longest wait is %v", d)
			}
			clock.Advance(time.Second + 200*time.Millisecond)
			p.wantEnd(ErrWaitTimeout)
			p.wantAnswer(in)
			if q.Resume() {
				t.Fatal("Resume has ended the wait too")
			}
			if st := p.Stats(); st.WaitTimeouts != 1 || st.Resumed != 0 || st.LongestWait != 0 {
				t.Fatalf("%+v", st)
			}
			q = p.poll(conn, pollText)
			q.Resume()
			p.wantEnd(nil)
			p.wantAnswer(in)
			clock.Advance(time.Hour)
			check.Empty(t, p.ends)
		})
	}
}

// The end of a client's connection ends the wait; then can still answer one that has only ended its
// own side.
func TestSuspendClientEnds(t *testing.T) {
	for _, kind := range pollKinds {
		for _, c := range []struct {
			name  string
			half  bool // the option
			end   func(net.Conn, *poll)
			cause error
			gets  bool // the client gets the answer
		}{
			{"closes", false, func(c net.Conn, _ *poll) { c.Close() }, ErrClientGone, false},
			{"resets", false, resetConn, ErrClientGone, false},
			{"resets, HalfClose", true, resetConn, ErrClientGone, false},
			{"half-closes", false, halfCloseTCP, ErrClientGone, true},
			{"half-closes, HalfClose", true, func(c net.Conn, p *poll) {
				halfCloseTCP(c, p)
				q := await.Value(p.t, p.waits) // put back
				q.Resume()
			}, nil, true},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				if c.name == "closes" && (kind == "TLS" || kind == "crypto/tls") {
					needEndBehindData(t) // TLS sends an alert first
				}
				backendtest.Each(t, func(t *testing.T, backend string) {
					p := newPoll(t, kind, func(p *poll) {
						p.options.HalfClose, p.Backend = c.half, backend
					}, nil)
					conn, in := p.dial()
					p.waits <- p.poll(conn, pollText)
					c.end(conn, p)
					p.wantEnd(c.cause)
					if c.gets {
						p.wantAnswer(in)
					}
					await.Until(t, "closed", func() bool { return p.closedCount(1) == 1 })
					st := p.Stats()
					if (st.ClientsGone == 1) != (c.cause != nil) || st.Suspended != 0 {
						t.Fatalf("%+v", st)
					}
				})
			})
		}
	}
}

// tcpOf returns the TCP connection of a client.
func tcpOf(conn net.Conn) *net.TCPConn {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	return conn.(*net.TCPConn)
}

func resetConn(conn net.Conn, _ *poll) {
	tcpOf(conn).SetLinger(0)
	tcpOf(conn).Close()
}

func halfCloseTCP(conn net.Conn, _ *poll) { tcpOf(conn).CloseWrite() }

// What the client sends while its request waits stays in the socket, and is served after the answer.
// The end behind it is noticed.
func TestSuspendPipelined(t *testing.T) {
	for _, kind := range pollKinds {
		t.Run(kind, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				p := newPoll(t, kind, func(p *poll) { p.Backend = backend }, nil)
				conn, in := p.dial()
				q := p.poll(conn, pollText+hello[:7])
				conntest.Send(t, conn, hello[7:]+hello)
				check.Empty(t, p.ends)
				if !q.Resume() {
					t.Fatal("the wait has ended")
				}
				p.wantAnswer(in)
				p.wantEnd(nil)
				wantHello := func() {
					t.Helper()
					if _, _, body := answered(t, in, "GET"); body != "hello\n" {
						t.Fatalf("%q", body)
					}
				}
				wantHello()
				wantHello()
				p.poll(conn, pollText)
				conntest.Send(t, conn, hello)
				halfCloseTCP(conn, p)
				if findsEndBehindData() {
					p.wantEnd(ErrClientGone)
					p.wantAnswer(in)
					wantHello()
				}
			})
		})
	}
}

// findsEndBehindData reports whether the system reports the end of a stream that has unread data.
func findsEndBehindData() bool { return runtime.GOOS == "linux" }

func needEndBehindData(t *testing.T) {
	t.Helper()
	if !findsEndBehindData() {
		t.Skip("the end of a stream may be reported only when everything before it was read")
	}
}

// Shutdown lets waiting requests answer, and the connections close. Close, Shutdown with
// EndSuspended, and the methods of the http.Server end them without an answer. then always runs
// once.
func TestSuspendShutdown(t *testing.T) {
	for _, c := range []struct {
		name     string
		end      bool
		shutdown func(*poll) error
		answers  bool
	}{
		{"Shutdown", false, func(p *poll) error { return p.Shutdown(t.Context()) }, true},
		{"Shutdown, EndSuspended", true, func(p *poll) error { return p.Shutdown(t.Context()) }, false},
		{"Close", false, func(p *poll) error { return p.Close() }, false},
		{"Shutdown of net/http", false,
			func(p *poll) error { return p.Server.Shutdown(t.Context()) }, false},
		{"Close of net/http", false, func(p *poll) error { return p.Server.Close() }, false},
	} {
		for _, kind := range pollKinds {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				p := newPoll(t, kind, func(p *poll) { p.EndSuspended = c.end }, nil)
				const conns = 5
				var ins []*bufio.Reader
				for range conns {
					conn, in := p.dial()
					p.poll(conn, pollText)
					ins = append(ins, in)
				}
				check.OK(t, c.shutdown(p))
				for _, in := range ins {
					if !c.answers {
						if _, err := in.ReadByte(); err == nil {
							t.Fatal("got an answer")
						}
						continue
					}
					_, header, body := answered(t, in, "GET")
					if body != "answer\n" || header.Get("Connection") != "close" {
						t.Fatalf("%v %q", header, body)
					}
				}
				for range conns {
					check.Is(t, await.Value(t, p.ends), http.ErrServerClosed)
				}
				check.Empty(t, p.ends)
				await.Until(t, "all closed", func() bool { return p.closedCount(conns) == conns })
				if st := p.Stats(); st.Suspended != 0 || st.WaitsClosed != conns {
					t.Fatalf("%+v", st)
				}
			})
		}
	}
}

// SetKeepAlivesEnabled(false) ends idle connections, and none whose request waits.
func TestSuspendKeepAlivesOff(t *testing.T) {
	p := newPoll(t, "plain", nil, nil)
	conn, in := p.dial()
	q := p.poll(conn, pollText)
	p.SetKeepAlivesEnabled(false)
	if !q.Resume() {
		t.Fatal("the wait has ended")
	}
	p.wantAnswer(in)
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
}

// A panic of the handler after Suspend ends the request. A panic of then is one of a handler.
func TestSuspendPanics(t *testing.T) {
	for _, value := range []any{"text", http.ErrAbortHandler} {
		for _, kind := range pollKinds {
			t.Run(fmt.Sprint(value, kind), func(t *testing.T) {
				p := newPoll(t, kind, nil, func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						h.ServeHTTP(w, r)
						if r.URL.Path == "/panic" {
							panic(value)
						}
					})
				})
				conn, in := p.dial()
				conntest.Send(t, conn, request("GET", "/panic"))
				q := await.Value(t, p.waits)
				if _, err := in.ReadByte(); err == nil {
					t.Fatal("got an answer")
				}
				await.Until(t, "closed", func() bool { return p.closedCount(1) == 1 })
				if q.Resume() {
					t.Fatal("the request still waits")
				}
				check.Empty(t, p.ends)

				p.answer = func(http.ResponseWriter, *http.Request) { panic(value) }
				conn, in = p.dial()
				p.poll(conn, pollText).Resume()
				if _, err := in.ReadByte(); err == nil {
					t.Fatal("got an answer")
				}
				p.wantEnd(nil)
				await.Until(t, "closed", func() bool { return p.closedCount(2) == 2 })
				if st := p.Stats(); st.Suspended != 0 || st.WaitsClosed != 1 {
					t.Fatalf("%+v", st)
				}
			})
		}
	}
}

// Waiting requests need no goroutine.
func TestSuspendGoroutines(t *testing.T) {
	p := newPoll(t, "plain", nil, nil)
	const conns = 200
	before := runtime.NumGoroutine()
	var all []*Suspended
	for range conns {
		conn, _ := p.dial()
		all = append(all, p.poll(conn, pollText))
	}
	await.Until(t, "no goroutine", func() bool {
		return runtime.NumGoroutine() <= before+2*max(2, runtime.GOMAXPROCS(0))
	})
	for _, q := range all {
		q.Resume()
	}
	await.Until(t, "all idle", func() bool {
		return p.Stats().Resumed == conns && p.Stats().Parked == conns
	})
}

// Beyond a limit Suspend fails, and the handler answers.
func TestSuspendLimits(t *testing.T) {
	for name, set := range map[string]func(*poll){
		"MaxSuspended":      func(p *poll) { p.MaxSuspended = 1 },
		"MaxSuspendedBytes": func(p *poll) { p.MaxSuspendedBytes = 50 },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPoll(t, "plain", set, nil)
			conn, in := p.dial()
			q := p.poll(conn, pollText)
			other, otherIn := p.dial()
			for range 2 {
				conntest.Send(t, other, pollText)
				if status, _, _ := answered(t, otherIn, "GET"); status != http.StatusServiceUnavailable {
					t.Fatal(status)
				}
				check.Is(t, await.Value(t, p.failed), ErrMaxSuspended)
			}
			q.Resume()
			p.wantAnswer(in)
			await.Until(t, "released", func() bool { return p.Stats().Suspended == 0 })
			p.poll(other, pollText).Resume()
			p.wantAnswer(otherIn)
			if n := p.Stats().RefusedSuspends; n != 2 {
				t.Fatalf("%d were refused", n)
			}
		})
	}
}

// A body beyond the limit can still be read, and the connection stays usable.
func TestSuspendBodyTooLong(t *testing.T) {
	p := newPoll(t, "plain", func(p *poll) { p.options.MaxBody = 5 }, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(httptest.NewRecorder(), r)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		})
	})
	conn, in := p.dial()
	for range 2 {
		conntest.Send(t, conn, "POST /poll HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nlonger")
		if _, _, body := answered(t, in, "POST"); body != "longer <nil>" {
			t.Fatalf("%q", body)
		}
		check.Is(t, await.Value(t, p.failed), ErrTooLong)
	}
	check.Empty(t, p.waits)
}

type testKey struct{}

// then gets the request as the handler had it, and the context of the server.
func TestSuspendRequest(t *testing.T) {
	var before, after *http.Request
	var beforeBody []byte
	mux := http.NewServeMux()
	p := newPoll(t, "plain", func(p *poll) {
		p.Server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, testKey{}, "of the connection")
		}
		p.answer = func(w http.ResponseWriter, r *http.Request) { after = r }
	}, func(h http.Handler) http.Handler {
		mux.Handle("POST /things/{thing}/{rest...}", h)
		mux.Handle("/", h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, change := range r.Header["Change"] {
				r = changeRequest(r, change)
			}
			seen := *r
			var err error
			if beforeBody, err = io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(beforeBody))
			w.Header().Add("Set-Cookie", "a=b")
			r = r.WithContext(context.WithValue(r.Context(), middlewareKey{}, "of middleware"))
			if r.Method == http.MethodConnect {
				h.ServeHTTP(w, r) // a ServeMux knows no authority
			} else {
				mux.ServeHTTP(w, r)
			}
			w.Header().Set("Vary", "Origin")
			seen.Pattern, before = r.Pattern, r
		})
	})
	conn, in := p.dial()
	for _, text := range []string{
		pollText,
		request("GET", "/things/one/two/three?q=1&r=%20#x"),
		request("POST", "/things/one/two/three?q=1", "Content-Length: 4", "A: b", "A: c", "B:") + "body",
		httpcorpus.Chunked("/things/a%2Fb/%20", "4\r\nbody\r\n0\r\nT: v\r\n\r\n", "Trailer: T"),
		"GET /poll HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
		request("GET", "http://user:word@host.example/path?q"),
		request("GET", "/poll", "Change: url"),
		request("GET", "/poll", "Change: userinfo"),
		request("GET", "/poll", "Change: method", "Change: remote", "Change: header",
			"Change: path value"),
		request("HEAD", "/poll"),
		request("GET", "/poll", "Connection: keep-alive", "Cookie: a=b; c=d"),
		request("CONNECT", "host.example:443"), // Go 1.27 closes the connection after it
	} {
		method, _, _ := strings.Cut(text, " ")
		conntest.Send(t, conn, text)
		await.Value(t, p.waits).Resume()
		_, header, _ := answered(t, in, method)
		p.wantEnd(nil)
		if header.Get("Vary") != "Origin" || header.Get("Set-Cookie") != "a=b" {
			t.Errorf("%q: the answer has %v", text, header)
		}
		compareRequests(t, text, after, before, beforeBody)
		ctx := after.Context()
		if ctx.Value(middlewareKey{}) != nil || ctx.Value(testKey{}) != "of the connection" ||
			ctx.Value(http.ServerContextKey) != p.Server ||
			ctx.Value(http.LocalAddrContextKey).(net.Addr).String() != p.address {
			t.Errorf("%q: the context is %v", text, ctx)
		}
	}
}

type middlewareKey struct{}

// changeRequest changes a request as some middleware does.
func changeRequest(r *http.Request, what string) *http.Request {
	u := *r.URL
	r2 := r.Clone(r.Context())
	r2.URL = &u
	switch what {
	case "url":
		u.Path, u.RawPath, u.RawQuery, u.Fragment, u.ForceQuery = "/a/b", "/a%2Fb", "x=\x00", "f", true
	case "userinfo":
		u.User = nil
		u.Scheme, u.Host, u.Opaque, u.OmitHost = "http", "h", "o", true
	case "method":
		r2.Method = "PUT\r\nX: y"
	case "remote":
		r2.RemoteAddr = "192.0.2.1:1"
	case "header":
		r2.Header = http.Header{"A": {"x\r\nB: y", "\x00"}, "lower": nil, "Empty": {""}}
	case "path value":
		r2.SetPathValue("name", "value")
		r2.Pattern = "/{name}"
	}
	return r2
}

// compareRequests compares what then has got with what the handler had.
func compareRequests(t *testing.T, text string, got, want *http.Request, body []byte) {
	t.Helper()
	gotBody, err := io.ReadAll(got.Body)
	if err != nil || string(gotBody) != string(body) {
		t.Errorf("%q: the body is %q, %v, want %q", text, gotBody, err, body)
	}
	type fields struct {
		Method, Proto, Host, RemoteAddr, RequestURI, Pattern string
		Major, Minor                                         int
		URL                                                  string
		Header, Trailer                                      http.Header
		Length                                               int64
		Coding                                               []string
		Close                                                bool
		Thing, Rest, Name                                    string
	}
	of := func(r *http.Request) fields {
		return fields{r.Method, r.Proto, r.Host, r.RemoteAddr, r.RequestURI, r.Pattern,
			r.ProtoMajor, r.ProtoMinor, urlText(r.URL), r.Header, r.Trailer, r.ContentLength, r.TransferEncoding, r.Close,
			r.PathValue("thing"), r.PathValue("rest"), r.PathValue("name")}
	}
	if a, b := of(got), of(want); !reflect.DeepEqual(a, b) {
		t.Errorf("%q: got %+v, want %+v", text, a, b)
	}
}

// urlText returns all fields of a URL.
func urlText(u *url.URL) string {
	v := *u
	v.User = nil
	return fmt.Sprintf("%#v %v", v, u.User)
}

// Parsed forms are kept, and the files of a multipart form exist until then has returned.
func TestSuspendForms(t *testing.T) {
	var file string
	p := newPoll(t, "plain", func(p *poll) {
		p.answer = func(w http.ResponseWriter, r *http.Request) {
			f, err := r.MultipartForm.File["file"][0].Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			file = f.(*os.File).Name()
			text, _ := io.ReadAll(f)
			fmt.Fprintf(w, "%s %s %d", r.FormValue("q"), r.PostForm.Get("a"), len(text))
		}
	}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			check.OK(t, r.ParseMultipartForm(1))
			h.ServeHTTP(w, r)
		})
	})
	var form bytes.Buffer
	out := multipart.NewWriter(&form)
	out.WriteField("a", "b")
	part, err := out.CreateFormFile("file", "name")
	check.OK(t, err)
	const size = 11 << 20 // net/http keeps 10 MiB in memory
	part.Write(make([]byte, size))
	out.Close()
	conn, in := p.dial()
	text := request("POST", "/poll?q=1", "Content-Type: "+out.FormDataContentType(),
		fmt.Sprint("Content-Length: ", form.Len())) + form.String()
	p.poll(conn, text).Resume()
	if _, _, body := answered(t, in, "POST"); body != fmt.Sprintf("1 b %d", size) {
		t.Fatalf("%q", body)
	}
	await.Until(t, "the file is removed", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist)
	})
}

// A then may let its request wait again.
func TestSuspendAgain(t *testing.T) {
	p := newPoll(t, "plain", nil, nil)
	var answers atomic.Int64
	p.answer = func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1) <= 3 {
			p.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v %s", body, err, r.Header.Get("A"))
	}
	conn, in := p.dial()
	q := p.poll(conn, "POST /poll HTTP/1.1\r\nHost: x\r\nA: b\r\nContent-Length: 4\r\n\r\nbody"+hello)
	for i := range 4 {
		q.Resume()
		p.wantEnd(nil)
		if i < 3 {
			q = await.Value(t, p.waits)
			p.waitParked(q)
		}
	}
	if _, _, body := answered(t, in, "POST"); body != "body <nil> b" {
		t.Fatalf("%q", body)
	}
	if _, _, body := answered(t, in, "GET"); body != "hello\n" {
		t.Fatalf("%q", body)
	}
}

// Calls that make no sense fail, and the handler answers.
func TestSuspendInvalid(t *testing.T) {
	register, then := func(*Suspended) {}, func(http.ResponseWriter, *http.Request, *Suspended) {}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	check.Is(t, Suspend(nil, r, register, then), socknotify.ErrInvalid)
	check.Is(t, Suspend(w, nil, register, then), socknotify.ErrInvalid)
	check.Is(t, Suspend(w, r, nil, then), socknotify.ErrInvalid)
	check.Is(t, Suspend(w, r, register, nil), socknotify.ErrInvalid)

	p := newPoll(t, "plain", nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			check.Is(t, Suspend(w, r, register, then), http.ErrHijacked)
		})
	})
	conn, in := p.dial()
	p.poll(conn, pollText).Resume()
	p.wantAnswer(in)
}

// net/http has the fields that canSuspend looks for. If this test fails with a new Go, requests wait
// with their goroutines.
func TestSuspendKnowsNetHTTP(t *testing.T) {
	checked := make(chan bool, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := served{body: r.Body}
		v := reflect.ValueOf(w).Elem().FieldByName("wroteHeader")
		ok := nethttp.IsResponse(w) && v.Kind() == reflect.Bool && !v.Bool()
		if r.ContentLength != 0 {
			io.ReadAll(io.LimitReader(r.Body, 2))
			ok = ok && !x.consumed() // and reads a byte
			io.ReadAll(r.Body)
		}
		ok = ok && x.consumed()
		w.WriteHeader(http.StatusOK)
		checked <- ok && v.Bool()
	}))
	defer s.Close()
	for _, text := range []string{request("GET", "/"), httpcorpus.Post("/", "body"),
		request("POST", "/", "Expect: 100-continue", "Content-Length: 4") + "body",
		httpcorpus.Chunked("/", "4\r\nbody\r\n0\r\n\r\n")} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		check.OK(t, err)
		conntest.Send(t, conn, text)
		if !await.Value(t, checked) {
			t.Errorf("%q: net/http has changed", text)
		}
		conn.Close()
	}
}
