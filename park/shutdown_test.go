package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// shutDown calls shutdown on a goroutine. end lets the time for first requests pass, and waits for the result.
func shutDown(t *testing.T, clock *testclock.Clock, shutdown func() error) (result chan error, end func()) {
	t.Helper()
	result = make(chan error, 1)
	go func() { result <- shutdown() }()
	return result, func() {
		t.Helper()
		await.Until(t, "Shutdown returns", func() bool {
			clock.Advance(serving.FirstRequestTime)
			select {
			case err := <-result:
				check.OK(t, err)
				return true
			default:
				return false
			}
		})
	}
}

// A connection that was accepted before Shutdown has its first request answered, and then ends. Shutdown waits for that, and
// for no connection that has been served.
func TestHTTPShutdownAnswersFirstRequest(t *testing.T) {
	for _, name := range []string{"plain", "TLS", "plain, Listener", "TLS, Listener"} {
		t.Run(name, func(t *testing.T) {
			testclock.Install(t) // the time for first requests does not pass
			secure, first := strings.HasPrefix(name, "TLS"), (*FirstByteListener)(nil)
			s := newTestServer(t, withTLS(t), func(s *HTTPServer, ln net.Listener) error {
				if strings.HasSuffix(name, "Listener") {
					first = Listener(ln)
					ln = first
				}
				if secure {
					return serveTLS(s, ln)
				}
				return s.Serve(ln)
			})
			dial := func() net.Conn {
				conn, err := net.Dial("tcp", s.address)
				check.OK(t, err)
				t.Cleanup(func() { conn.Close() })
				conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
				if secure {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				}
				return conn
			}
			used := dial()
			in := bufio.NewReader(used)
			s.ask(used, in)
			fresh := dial()
			await.Until(t, "accepted, and parked", func() bool {
				accepted, parked := s.connCount(), s.Stats().Parked
				if first != nil { // which has the new one
					accepted += first.Stats().Parked
					parked++
				}
				return accepted == 2 && parked == 2
			})
			result := make(chan error, 1)
			go func() { result <- s.Shutdown(t.Context()) }()
			if _, err := in.ReadByte(); err != io.EOF {
				t.Fatal(err)
			}
			if s.Ready() {
				t.Error("ready after Shutdown has begun")
			}
			if c, err := net.Dial("tcp", s.address); err == nil {
				c.Close()
				t.Error("the listener is open")
			}
			check.Is(t, s.HTTPServer.Serve(conntest.Listen(t)), http.ErrServerClosed)
			check.Empty(t, result)
			conntest.Send(t, fresh, hello)
			r, err := http.ReadResponse(bufio.NewReader(fresh), nil)
			check.OK(t, err)
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != "hello\n" || !r.Close {
				t.Errorf("%q, %v, Connection: close is %t", body, err, r.Close)
			}
			check.OK(t, await.Value(t, result))
			await.Until(t, "closed", func() bool { return s.closedCount(2) == 2 })
		})
	}
}

// If the program closes its listener, Serve returns when the handshakes that have begun are over, and the connections are
// served as with net/http.
func TestHTTPListenerClosed(t *testing.T) {
	for _, end := range []string{"handshake", "silence"} {
		t.Run(end, func(t *testing.T) {
			clock := testclock.Install(t)
			ln := conntest.Listen(t)
			s := &HTTPServer{Server: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
			withTLS(t)(s)
			accepted := make(chan struct{}, 1)
			s.Server.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					accepted <- struct{}{}
				}
			}
			served := make(chan error, 1)
			go func() { served <- serveTLS(s, ln) }()
			raw, err := net.Dial("tcp", ln.Addr().String())
			check.OK(t, err)
			defer raw.Close()
			await.Value(t, accepted)
			ln.Close()
			if end == "handshake" {
				conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
				conntest.Send(t, conn, hello)
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				check.OK(t, err)
				if r.StatusCode != http.StatusOK {
					t.Error(r.Status)
				}
				check.Is(t, await.Value(t, served), net.ErrClosed)
			} else {
				await.Until(t, "Serve returns", func() bool {
					clock.Advance(serving.FirstRequestTime)
					select {
					case err := <-served:
						check.Is(t, err, net.ErrClosed)
						return true
					default:
						return false
					}
				})
			}
			check.OK(t, s.Close())
			check.OK(t, s.Shutdown(t.Context()))
		})
	}
}

// A connection that was accepted before Shutdown has its first message answered, and then ends.
func TestServerShutdownAnswersFirstMessage(t *testing.T) {
	secure := func(s *Server, l net.Listener) error { return s.ServeTLS(l, "", "") }
	var first *FirstByteListener
	listener := func(s *Server, l net.Listener) error {
		first = Listener(l)
		return s.Serve(first)
	}
	for name, serve := range map[string]func(*Server, net.Listener) error{"plain": nil, "TLS": secure, "unparkable": serveOpaque,
		"Listener": listener} {
		t.Run(name, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				clock := testclock.Install(t)
				s := newLineServer(t, func(s *Server) {
					s.Backend = backend
					s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
				}, serve)
				s.secure = name == "TLS"
				used, fresh, silent := s.dial(), s.dial(), s.dial()
				s.ask(used, "x")
				await.Until(t, "accepted", func() bool {
					n := s.Stats()
					if name == "Listener" {
						n.Conns += first.Stats().Parked
					}
					return n.Conns == 3 && n.Running == 0
				})
				result, end := shutDown(t, clock, func() error { return s.Shutdown(t.Context()) })
				s.ended(used)
				check.Is(t, await.Value(t, s.closed), ErrServerClosed)
				check.Empty(t, result)
				s.ask(fresh, "first")
				s.ended(fresh)
				check.Is(t, await.Value(t, s.closed), ErrServerClosed)
				check.Empty(t, result)
				end()
				s.ended(silent)
			})
		})
	}
}

// A request of a busy connection that comes during Shutdown is answered, or its handler is not called: a client may then send
// it again elsewhere.
func TestHTTPShutdownServesWhole(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0} {
		for range long.Or(100, 30) {
			var calls, answers atomic.Int64
			s := newTestServer(t, func(s *HTTPServer) {
				s.Linger = linger
				s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls.Add(1) })
			}, nil)
			var clients sync.WaitGroup
			for range 4 {
				conn, err := net.Dial("tcp", s.address)
				check.OK(t, err)
				conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
				clients.Go(func() {
					defer conn.Close()
					for in := bufio.NewReader(conn); ; {
						if _, err := io.WriteString(conn, hello); err != nil {
							return
						}
						if _, err := http.ReadResponse(in, nil); err != nil {
							return
						}
						answers.Add(1)
					}
				})
			}
			await.Until(t, "requests are answered", func() bool { return answers.Load() >= 20 })
			check.OK(t, s.Shutdown(t.Context()))
			clients.Wait()
			if calls, answers := calls.Load(), answers.Load(); calls != answers {
				t.Fatalf("Linger %v: %d calls, %d answers", linger, calls, answers)
			}
		}
	}
}

// Close does not wait for connections of a Listener that are silent.
func TestServerCloseBehindListener(t *testing.T) {
	testclock.Install(t) // their time does not pass
	var first *FirstByteListener
	s := newLineServer(t, nil, func(s *Server, l net.Listener) error {
		first = Listener(l)
		return s.Serve(first)
	})
	used, silent := s.dial(), s.dial()
	s.ask(used, "x")
	await.Until(t, "accepted", func() bool { return first.Stats().Parked == 1 })
	check.OK(t, s.Close())
	s.ended(used)
	s.ended(silent)
}
