package park

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A hidingWriter is a ResponseWriter without an Unwrap method.
type hidingWriter struct{ http.ResponseWriter }

// An unwrappingWriter has an Unwrap method, as that of a middleware that logs.
type unwrappingWriter struct{ http.ResponseWriter }

func (w unwrappingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A middleware is a handler around another one.
type middleware func(w http.ResponseWriter, r *http.Request, next http.Handler)

func (m middleware) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m(w, r, h) })
}

type blockCase struct {
	name   string
	kind   string // of the connection
	blocks int    // how many requests of one wait with their goroutine
	wrap   func(http.Handler) http.Handler
	body   string // of the answer
}

// blockCases returns what may be around a handler, and whether its requests keep their goroutine.
func blockCases() []blockCase {
	return []blockCase{
		{"a wrapper with Unwrap", "plain", 0,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				h.ServeHTTP(unwrappingWriter{w}, r)
			}).wrap, "answer\n"},
		{"a wrapper without Unwrap", "plain", 1,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				h.ServeHTTP(hidingWriter{w}, r)
			}).wrap, "answer\n"},
		{"something was written", "plain", 1,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				io.WriteString(w, "first, ")
				h.ServeHTTP(w, r)
			}).wrap, "first, answer\n"},
		{"informational", "plain", 0,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				w.WriteHeader(http.StatusEarlyHints)
				h.ServeHTTP(w, r)
			}).wrap, "answer\n"},
		{"TimeoutHandler", "plain", 1, func(h http.Handler) http.Handler {
			return http.TimeoutHandler(h, time.Hour, "")
		}, "answer\n"},
		{"a Content-Encoding", "plain", 1,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				w.Header().Set("Content-Encoding", "x")
				h.ServeHTTP(unwrappingWriter{w}, r)
			}).wrap, "answer\n"},
		{"a body that is replaced and not read", "plain", 1,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				r.Body = io.NopCloser(strings.NewReader("other"))
				h.ServeHTTP(w, r)
			}).wrap, "answer\n"},
		{"a body that is limited", "plain", 0,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				r.Body = http.MaxBytesReader(w, r.Body, 100)
				h.ServeHTTP(w, r)
			}).wrap, "answer\n"},
		{"a body that was read and closed", "plain", 0,
			middleware(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				io.ReadAll(r.Body)
				r.Body.Close()
				h.ServeHTTP(w, r)
			}).wrap, "answer\n"},
		{"a connection that cannot be parked", "opaque", 1, nil, "answer\n"},
	}
}

// Where a request cannot wait without its goroutine, it waits with it, and is answered.
func TestSuspendBlocks(t *testing.T) {
	for _, c := range blockCases() {
		t.Run(c.name, func(t *testing.T) {
			p := newPoll(t, c.kind, nil, c.wrap)
			conn, in := p.dial()
			for range 2 {
				conntest.Send(t, conn, "POST /poll HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
				q := await.Value(t, p.waits)
				if st := p.Stats(); st.Blocked != c.blocks || st.Suspended != 1 {
					t.Fatalf("%+v", st)
				}
				if !q.Resume() || q.Resume() {
					t.Fatal("Resume has not ended the wait once")
				}
				status, _, body := answered(t, in, "POST")
				for status == http.StatusEarlyHints {
					status, _, body = answered(t, in, "POST")
				}
				if status != http.StatusOK || body != c.body {
					t.Fatalf("%d %q", status, body)
				}
				p.wantEnd(nil)
			}
			if st := p.Stats(); st.Suspended != 0 || st.Blocked != 0 || st.Resumed != 2 {
				t.Fatalf("%+v", st)
			}
		})
	}
}

// A request that waits with its goroutine ends for the same reasons, on any server.
func TestSuspendBlockedEnds(t *testing.T) {
	t.Run("TimeoutHandler", func(t *testing.T) {
		p := newPoll(t, "plain", nil, func(h http.Handler) http.Handler {
			return http.TimeoutHandler(h, time.Millisecond, "too late")
		})
		conn, in := p.dial()
		conntest.Send(t, conn, pollText)
		status, _, body := answered(t, in, "GET")
		if status != http.StatusServiceUnavailable || body != "too late" {
			t.Fatalf("%d %q", status, body)
		}
		p.wantEnd(context.DeadlineExceeded)
	})
	t.Run("timeout", func(t *testing.T) {
		clock := testclock.Install(t)
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		got := make(chan error, 1)
		go func() {
			for clock.Timers() == 0 {
				await.Pause(time.Millisecond)
			}
			clock.Advance(time.Minute)
		}()
		check.OK(t, SuspendWith(w, r, SuspendOptions{Timeout: time.Minute}, func(*Suspended) {},
			func(_ http.ResponseWriter, r *http.Request, _ *Suspended) { got <- context.Cause(r.Context()) }))
		check.Is(t, await.Value(t, got), ErrWaitTimeout)
	})
	t.Run("the client goes", func(t *testing.T) {
		p := &poll{waits: make(chan *Suspended, 1), ends: make(chan error, 1)}
		p.answer = func(http.ResponseWriter, *http.Request) {}
		p.testServer = &testServer{t: t}
		s := httptest.NewServer(p)
		defer s.Close()
		p.address = s.Listener.Addr().String()
		conn, _ := p.dial()
		conntest.Send(t, conn, pollText)
		q := await.Value(t, p.waits)
		conn.Close()
		p.wantEnd(ErrClientGone)
		if q.Resume() {
			t.Fatal("the request still waits")
		}
	})
	t.Run("Shutdown", func(t *testing.T) {
		p := newPoll(t, "opaque", nil, nil)
		conn, in := p.dial()
		conntest.Send(t, conn, pollText)
		await.Value(t, p.waits)
		check.OK(t, p.Shutdown(t.Context()))
		p.wantEnd(http.ErrServerClosed)
		p.wantAnswer(in)
	})
	t.Run("after Shutdown", func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		p := newPoll(t, "plain", nil, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-release
				h.ServeHTTP(w, r)
			})
		})
		conn, in := p.dial()
		conntest.Send(t, conn, pollText)
		await.Value(t, entered)
		ended := make(chan error, 1)
		go func() { ended <- p.Shutdown(t.Context()) }()
		await.Until(t, "Shutdown has begun", p.waitsClosed)
		close(release)
		p.wantEnd(http.ErrServerClosed)
		p.wantAnswer(in)
		check.OK(t, await.Value(t, ended))
	})
}

func (p *poll) waitsClosed() bool { return p.HTTPServer.waits.ending.HasBegun() }

// A handler can be tested with a ResponseRecorder.
func TestSuspendRecorder(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body"))
	r = r.WithContext(context.WithValue(r.Context(), middlewareKey{}, "of middleware"))
	waits := make(chan *Suspended, 1)
	go func() { (<-waits).Resume() }()
	register := func(q *Suspended) { waits <- q }
	check.OK(t, Suspend(w, r, register, func(w http.ResponseWriter, r *http.Request, _ *Suspended) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Context().Value(middlewareKey{}) == nil {
			t.Errorf("%v, %v", err, r.Context())
		}
		w.Write(body)
	}))
	if w.Body.String() != "body" {
		t.Fatalf("%q", w.Body)
	}
	r = httptest.NewRequest("POST", "/", strings.NewReader("body"))
	err := SuspendWith(w, r, SuspendOptions{MaxBody: 3}, register, func(http.ResponseWriter, *http.Request, *Suspended) {})
	check.Is(t, err, ErrTooLong)
}

// HTTP/2 of net/http keeps the goroutine.
func TestSuspendHTTP2(t *testing.T) {
	p := newPoll(t, "TLS", nil, nil)
	tr := &http.Transport{ForceAttemptHTTP2: true}
	tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	defer tr.CloseIdleConnections()
	go func() { (<-p.waits).Resume() }()
	res, err := (&http.Client{Transport: tr}).Get("https://" + p.address + "/poll")
	check.OK(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.ProtoMajor != 2 || string(body) != "answer\n" {
		t.Fatalf("%v %q %v", res.Proto, body, err)
	}
	p.wantEnd(nil)
	if st := p.Stats(); st.Resumed != 1 || st.Blocked != 0 {
		t.Fatalf("%+v", st)
	}
}

// A connection that cannot be registered with the lot keeps a goroutine while its request waits.
func TestSuspendParkingFails(t *testing.T) {
	p := newPoll(t, "plain", func(p *poll) { registerElsewhere(t, p.Server) }, nil)
	conn, in := p.dial()
	for range 2 {
		conntest.Send(t, conn, pollText)
		await.Value(t, p.waits).Resume()
		p.wantAnswer(in)
		p.wantEnd(nil)
	}
	conntest.Send(t, conn, pollText)
	await.Value(t, p.waits)
	check.OK(t, p.Shutdown(t.Context()))
	p.wantEnd(http.ErrServerClosed)
	p.wantAnswer(in)
}

// A middleware that encodes with gzip encodes the answer of a request that blocks.
func TestSuspendGzip(t *testing.T) {
	p := newPoll(t, "plain", nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			h.ServeHTTP(gzipWriter{w, z}, r)
		})
	})
	conn, in := p.dial()
	conntest.Send(t, conn, pollText)
	await.Value(t, p.waits).Resume()
	_, header, body := answered(t, in, "GET")
	z, err := gzip.NewReader(strings.NewReader(body))
	check.OK(t, err)
	text, err := io.ReadAll(z)
	if err != nil || string(text) != "answer\n" || header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%q %v %v", text, err, header)
	}
}

type gzipWriter struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w gzipWriter) Write(b []byte) (int, error) { return w.z.Write(b) }
func (w gzipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var errTest = errors.New("of the test")

// If the body cannot be read, Suspend fails with the error.
func TestSuspendBadBody(t *testing.T) {
	body := io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errTest))
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", body)
	check.Is(t, Suspend(w, r, func(*Suspended) {}, func(http.ResponseWriter, *http.Request, *Suspended) {}), errTest)
}
