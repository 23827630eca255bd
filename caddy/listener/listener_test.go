package listener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/long"
)

// Idle connections have no goroutine, and serve further requests, as often as they are parked.
func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		name       string
		secure, h2 bool
		wrappers   string
		parked     bool
	}{
		{"HTTP/1.1", false, false, "park", true},
		{"HTTP/1.1 and TLS", true, false, "park", true},
		{"HTTP/1.1 and crypto/tls", true, false, "park idle http2", true},
		{"HTTP/2", true, true, "park", true},
		{"HTTP/2 and crypto/tls", true, true, "park http2", true},
		{"HTTP/2 without TLS", false, true, "park", true},
		{"a wrapper before TLS", true, true, "http_redirect\ntls\npark", true},
		{"HTTP/2 of Caddy", true, true, "park idle lean_tls", false},
		{"stock", true, false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := run(t, setting{secure: c.secure, wrappers: c.wrappers})
			const n = 20
			var clients [n]*http.Client
			for i := range clients {
				clients[i] = s.client(t, c.h2)
			}
			proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[c.h2]
			for round := range 3 {
				for _, client := range clients {
					got, err := s.get(client, fmt.Sprint("/", round))
					if want := fmt.Sprint("GET /", round, " ", proto, " "); err != nil || got != want {
						t.Fatalf("%q, %v; want %q", got, err, want)
					}
				}
				if c.parked {
					s.awaitParked(t, n)
					await.Until(t, "no goroutine serves", func() bool { return serving() == 0 })
				} else if got := serving(); got < n {
					t.Fatalf("%d goroutines serve, want %d", got, n)
				}
			}
		})
	}
}

const head = " HTTP/1.1\r\nHost: localhost\r\n"

var large = strings.Repeat("0123456789", 2000)

// What clients send, in TestBytes.
var texts = []struct{ name, text string }{
	{"a request", "GET /1" + head + "\r\n"},
	{"a body", "POST /1" + head + "Content-Length: 5\r\n\r\nhello"},
	{"a large body", "POST /1" + head + "Content-Length: 20000\r\n\r\n" + large},
	{"a chunked body", "POST /1" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	{"half a body", "POST /1" + head + "Content-Length: 10\r\n\r\nhello"},
	{"pipelined", "GET /1" + head + "\r\nPOST /2" + head + "Content-Length: 5\r\n\r\nhelloGET /3" + head + "\r\n"},
	{"a line break after a POST", "POST /1" + head + "Content-Length: 5\r\n\r\nhello\r\nGET /2" + head + "\r\n"},
	{"a last request", "GET /1" + head + "Connection: close\r\n\r\nGET /2" + head + "\r\n"},
	{"HTTP/1.0", "GET /1 HTTP/1.0\r\nHost: localhost\r\n\r\n"},
	{"half a request", "GET /1" + head},
	{"a byte", "G"},
	{"malformed", "GET /1 /2" + head + "\r\n"},
	{"without a host", "GET /1 HTTP/1.1\r\n\r\n"},
	{"large headers", "GET /1" + head + "X: " + large + large + "\r\n\r\n"},
	{"no HTTP", "\x16\x03\x01\x00\x05hello"},
	{"nothing", ""},
}

// The bytes of answers are those of Caddy without the wrapper, also for a connection that was parked before.
func TestBytes(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, protocols := range []string{"h1 h2", "h1"} {
			t.Run(fmt.Sprintf("%s/TLS %t", protocols, secure), func(t *testing.T) {
				set := setting{secure: secure, protocols: protocols}
				want := exchanges(t, set)
				set.wrappers = "park"
				got := exchanges(t, set)
				for name, answer := range want {
					if got[name] != answer {
						t.Errorf("%s: %.2000q\nwant %.2000q", name, got[name], answer)
					}
				}
			})
		}
	}
}

var date = regexp.MustCompile(`Date: [^\r]*\r\n`)

// exchanges sends each text on a new connection, and on one that has had a request; some of each have been idle before for as
// long as it takes to park them. The connections are closed for writing after the text. exchanges returns what is received to
// the end.
func exchanges(t *testing.T, set setting) map[string]string {
	t.Helper()
	s := run(t, set)
	answers := make(map[string]string)
	for _, pause := range []bool{false, true} {
		conns := make(map[string]net.Conn)
		parked := 0
		for _, text := range texts {
			for _, before := range []bool{false, true} {
				conn := s.dial(t)
				conns[fmt.Sprintf("%s, request before: %t, pause: %t", text.name, before, pause)] = conn
				if before {
					_, err := roundTrip(conn, "/before")
					check.OK(t, err)
				}
				if before || !set.secure { // after its handshake, net/http has a connection until its first request
					parked++
				}
			}
		}
		if pause && set.wrappers != "" {
			s.awaitParked(t, parked)
		}
		for _, text := range texts {
			for name, conn := range conns {
				if strings.HasPrefix(name, text.name+", ") {
					answers[name] = exchange(t, conn, text.text)
				}
			}
		}
	}
	return answers
}

// exchange sends a text and returns what comes until the end.
func exchange(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	_, err := io.WriteString(conn, text)
	check.OK(t, err)
	check.OK(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	conn.SetReadDeadline(time.Now().Add(await.Limit))
	b, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection was left open after %q", b)
	}
	conn.Close()
	return date.ReplaceAllString(string(b), "")
}

// A reload while clients make requests loses none. Half of the clients keep their connections, and others make a connection
// for each request. The former make requests that may be sent again: a server may close an idle connection at any time.
// A connection that Linux has given to the socket of the former configuration in the microseconds before that is closed is
// reset, and does not count.
func TestReload(t *testing.T) {
	for _, c := range []struct {
		name       string
		secure, h2 bool
	}{{"HTTP/1.1", false, false}, {"HTTP/1.1 and TLS", true, false}, {"HTTP/2", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			set := setting{secure: c.secure, wrappers: "park"}
			s := run(t, set)
			var lost, reset, answered atomic.Int64
			var clients sync.WaitGroup
			over := make(chan struct{})
			for i := range 8 {
				client, keep := s.client(t, c.h2), i%2 == 0
				clients.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
						}
						method, text := "POST", "hello"
						if keep {
							method, text = "GET", ""
						}
						got, err := s.do(client, method, "/", strings.NewReader(text))
						switch {
						case err == nil && strings.HasSuffix(got, " "+text):
							answered.Add(1)
						case errors.Is(err, syscall.ECONNRESET):
							reset.Add(1)
						default:
							t.Logf("%s: %q, %v", method, got, err)
							lost.Add(1)
						}
						if !keep {
							client.CloseIdleConnections()
						}
					}
				})
			}
			for range long.Or(20, 5) {
				from := answered.Load()
				await.Until(t, "requests are answered", func() bool { return answered.Load() > from+50 })
				s.load(t, set)
			}
			close(over)
			clients.Wait()
			t.Logf("%d requests were answered, %d connections were reset", answered.Load(), reset.Load())
			if n := lost.Load(); n > 0 {
				t.Errorf("%d requests were lost", n)
			}
			check.OK(t, awaitEnded(t.Context())) // idle connections of former configurations are closed
		})
	}
}

// The hooks of other modules are called as without the wrapper.
func TestHooks(t *testing.T) {
	for _, secure := range []bool{false, true} {
		record := func(wrappers string) (states []http.ConnState) {
			s := run(t, setting{secure: secure, wrappers: wrappers, routes: "route {\ntest_panic\n" + echo + "\n}"})
			conn := s.dial(t)
			address := conn.LocalAddr().String()
			for range 2 {
				if got, err := roundTrip(conn, "/context"); err != nil || got != address {
					t.Fatalf("%q, %v; want %q", got, err, address)
				}
				if wrappers != "test_hooks" {
					s.awaitParked(t, 1)
				}
			}
			conn.Close()
			await.Until(t, "StateClosed", func() bool {
				hooks.Lock()
				defer hooks.Unlock()
				states = hooks.states[address]
				if n := hooks.contexts[address]; n != 1 {
					t.Fatalf("%d calls of ConnContext, want 1", n)
				}
				return slices.Contains(states, http.StateClosed)
			})
			return states
		}
		want := record("test_hooks")
		if got := record("test_hooks\npark"); !slices.Equal(got, want) {
			t.Errorf("TLS %t: %v, want %v", secure, got, want)
		}
	}
}

// A panic of a handler ends its connection, and no other.
func TestPanic(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := run(t, setting{secure: secure, wrappers: "park", routes: "route {\ntest_panic\n" + echo + "\n}"})
		bystander, victim := s.dial(t), s.dial(t)
		for _, conn := range []net.Conn{bystander, victim} {
			_, err := roundTrip(conn, "/")
			check.OK(t, err)
		}
		s.awaitParked(t, 2)
		_, err := roundTrip(victim, "/panic")
		check.Is(t, err, io.ErrUnexpectedEOF)
		_, err = roundTrip(bystander, "/")
		check.OK(t, err)
		if log := s.log(t); !strings.Contains(log, "a panic of a test") {
			t.Error("the panic is not logged")
		}
	}
}

// What cannot be parked is served as without the wrapper, and the log has the reason.
func TestAsBefore(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     setting
		backend string
		h2      bool
		reason  string
	}{
		{"no HTTP/1", setting{secure: true, wrappers: "park", protocols: "h2"}, "", true, "protocols do not include h1"},
		{"a backend that does not exist", setting{wrappers: "park"}, "none", false, "connections are not parked any more"},
		{"the same with TLS", setting{secure: true, wrappers: "park"}, "none", true, "connections are not parked any more"},
		{"a wrapper that hides TLS", setting{secure: true, wrappers: "test_hiding\npark"}, "", true, "hides the TLS connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("SOCKNOTIFY_BACKEND", c.backend)
			s := run(t, c.set)
			for range 3 {
				client := s.client(t, c.h2)
				for range 2 {
					got, err := s.do(client, "POST", "/", strings.NewReader("hello"))
					if err != nil || !strings.HasSuffix(got, " hello") {
						t.Fatalf("%q, %v", got, err)
					}
				}
			}
			await.Until(t, "the log has: "+c.reason, func() bool { return strings.Contains(s.log(t), c.reason) })
			s.load(t, c.set)
			if _, err := s.get(s.client(t, c.h2), "/"); err != nil {
				t.Errorf("after a reload: %v", err)
			}
		})
	}
}

// If the server does not make itself known, it accepts all connections, the first one included.
func TestUnknownServer(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.WithValue(t.Context(), caddyhttp.ServerCtxKey,
		&caddyhttp.Server{Protocols: []string{"h1"}})})
	defer cancel()
	var w Wrapper
	check.OK(t, w.Provision(ctx))
	l := w.WrapListener(conntest.Listen(t))
	var clients [2]net.Conn
	for i := range clients {
		var err error
		clients[i], err = net.Dial("tcp", l.Addr().String())
		check.OK(t, err)
		defer clients[i].Close()
	}
	greeting, err := l.Accept()
	check.OK(t, err)
	_, err = greeting.Read(make([]byte, 1))
	check.Is(t, err, io.EOF)
	for _, client := range clients {
		conn, err := l.Accept()
		check.OK(t, err)
		defer conn.Close()
		if got, want := conn.RemoteAddr().String(), client.LocalAddr().String(); got != want {
			t.Errorf("accepted %s, want %s", got, want)
		}
	}
	check.OK(t, l.Close())
	_, err = l.Accept()
	check.Is(t, err, net.ErrClosed)
}

// An upgraded connection belongs to the proxy, as without the wrapper.
func TestUpgrade(t *testing.T) {
	backend := conntest.Listen(t)
	go http.Serve(backend, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(conn, rw)
		io.WriteString(conn, "end")
	}))
	for _, secure := range []bool{false, true} {
		s := run(t, setting{secure: secure, wrappers: "park", routes: "reverse_proxy " + backend.Addr().String()})
		conn := s.dial(t)
		_, err := io.WriteString(conn, "GET /"+head+"Connection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
		check.OK(t, err)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		check.OK(t, err)
		if resp.StatusCode != 101 {
			t.Fatal(resp.Status)
		}
		conntest.Send(t, conn, " late ")
		check.OK(t, conn.(interface{ CloseWrite() error }).CloseWrite())
		if got, err := io.ReadAll(in); err != nil || string(got) != "early late end" {
			t.Errorf("TLS %t: %q, %v", secure, got, err)
		}
	}
}
