package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// An httpServer is what park.HTTPServer and http.Server have in common.
type httpServer interface {
	Serve(net.Listener) error
	ServeTLS(net.Listener, string, string) error
	Shutdown(context.Context) error
	Close() error
	SetKeepAlivesEnabled(bool)
}

// start serves hs with s, and returns the URL, and a function that closes the server and returns the error of Serve. The
// server speaks HTTP/1.1 and HTTP/2.
func start(t testing.TB, s httpServer, hs *http.Server, secure bool) (url string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if hs.Protocols == nil {
		hs.Protocols = new(http.Protocols)
		hs.Protocols.SetHTTP1(true)
		hs.Protocols.SetHTTP2(true)
		hs.Protocols.SetUnencryptedHTTP2(true)
	}
	cert, _ := certificate()
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	served := make(chan error, 1)
	url = "http://"
	if secure {
		url = "https://"
	}
	go func() {
		if secure {
			served <- s.ServeTLS(ln, "", "")
		} else {
			served <- s.Serve(ln)
		}
	}()
	stop = sync.OnceValue(func() error {
		s.Close()
		if p, ok := s.(*park.HTTPServer); ok {
			await.Until(t, "no connection is counted any more", func() bool { return p.Stats().Conns == 0 })
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		return <-served
	})
	t.Cleanup(func() { stop() })
	return url + ln.Addr().String(), stop
}

// parked returns a server that parks its connections at once.
func parked(hs *http.Server) *park.HTTPServer {
	return &park.HTTPServer{Server: hs, Linger: -1, HTTP2: new(Server)}
}

// client1 returns a client that speaks HTTP/1.1 only.
func client1(t testing.TB) *http.Client {
	_, trust := certificate()
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: timeout}
}

// park.HTTPServer parks connections of both protocols, on one listener, and its counts and lots include both.
func TestHTTPServer(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		var lots []*park.Lot
		s := parked(handler(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.RemoteAddr, " ", r.TLS != nil)
		}))
		s.TimeCalls = true
		s.OnLot = func(l *park.Lot) { lots = append(lots, l) }
		url, stop := start(t, s, s.Server, secure)
		c1, c2 := client1(t), client(t)
		_, first1 := get(t, c1, url)
		_, first2 := get(t, c2, url)
		if !strings.HasPrefix(first1, "HTTP/1.1 ") || !strings.HasPrefix(first2, "HTTP/2.0 ") ||
			!strings.HasSuffix(first2, fmt.Sprint(secure)) {
			t.Fatalf("%q, %q", first1, first2)
		}
		for range 5 {
			until(t, "both connections are parked", func() bool { return s.Stats().Parked == 2 })
			_, text1 := get(t, c1, url)
			_, text2 := get(t, c2, url)
			if text1 != first1 || text2 != first2 {
				t.Fatalf("%q, %q, want %q, %q", text1, text2, first1, first2)
			}
		}
		until(t, "all requests are counted", func() bool { return s.Stats().CallTime.Count() == 12 })
		if n := s.Stats().Calls; n != 12 || len(lots) != 2 || len(s.Lots()) != 2 {
			t.Errorf("%d requests, %d lots, %d in Lots", n, len(lots), len(s.Lots()))
		}
		if err := stop(); err != http.ErrServerClosed {
			t.Error(err)
		}
		if st := s.Stats(); st.Parked != 0 || st.Running != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
}

// hooks records what an http.Server's hooks are called with.
type hooks struct {
	mu     sync.Mutex
	states []string
	conns  map[net.Conn]bool
}

type hookKey struct{}

func (h *hooks) install(hs *http.Server) {
	h.conns = make(map[net.Conn]bool)
	hs.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), hookKey{}, "base") }
	hs.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		h.add(conn, fmt.Sprint("context ", ctx.Value(http.ServerContextKey) == hs, ctx.Value(http.LocalAddrContextKey)))
		return context.WithValue(ctx, hookKey{}, fmt.Sprint(ctx.Value(hookKey{}), " conn"))
	}
	hs.ConnState = func(conn net.Conn, state http.ConnState) { h.add(conn, state.String()) }
}

func (h *hooks) add(conn net.Conn, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[conn] = true
	kind := fmt.Sprintf("%T", conn)
	if _, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		kind = "TLS" // net/http has a *tls.Conn
	}
	h.states = append(h.states, what+" "+kind)
}

func (h *hooks) seen(what string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.states, func(s string) bool { return strings.HasPrefix(s, what) })
}

// The hooks are called as by net/http: in the same order, with the same type of connection, and with one value for each.
// Contexts of requests have the same values.
func TestHooks(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		run := func(name string, hs *http.Server, s httpServer) []string {
			var h hooks
			h.install(hs)
			url, stop := start(t, s, hs, secure)
			c := client(t)
			for i := range 3 {
				if _, text := get(t, c, url); text != "base conn true true" {
					t.Errorf("%s: %q", name, text)
				}
				until(t, "the connection is idle", func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return len(h.states) == 6+2*i && strings.HasPrefix(h.states[len(h.states)-1], "idle")
				})
			}
			c.CloseIdleConnections()
			until(t, "the connection is closed", func() bool { return h.seen("closed") })
			stop()
			if len(h.conns) != 1 {
				t.Errorf("%s: %d connections, want 1", name, len(h.conns))
			}
			return h.states
		}
		h := func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			fmt.Fprint(w, ctx.Value(hookKey{}), " ", ctx.Value(http.ServerContextKey) != nil, " ",
				ctx.Value(http.LocalAddrContextKey) != nil)
		}
		stock := handler(h)
		want := run("net/http", stock, stock)
		ours := handler(h)
		if got := run("park", ours, parked(ours)); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// A hook that panics costs its connection, is logged, and leaves the server as it was.
func TestHookPanics(t *testing.T) {
	for _, at := range []http.ConnState{http.StateActive, http.StateIdle, http.StateClosed} {
		var mu sync.Mutex
		var logged bytes.Buffer
		panicked := false
		hs := handler(echo)
		hs.ErrorLog = log.New(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return logged.Write(p)
		}), "", 0)
		hs.ConnState = func(_ net.Conn, state http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			if state == at && !panicked {
				panicked = true
				panic("in the hook")
			}
		}
		url, _ := start(t, parked(hs), hs, true)
		c := client(t)
		if resp, err := c.Get(url); err == nil {
			resp.Body.Close()
		}
		c.CloseIdleConnections()
		until(t, "the panic is logged", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(logged.String(), "in the hook")
		})
		get(t, client(t), url)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Shutdown, of the HTTPServer or of the http.Server, lets streams end and closes idle connections; Close does not wait.
func TestHTTPServerEnds(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		for _, how := range []string{"Shutdown", "Close", "Server.Shutdown", "Server.Close"} {
			t.Run(how, func(t *testing.T) {
				begun, proceed, canceled := make(chan bool), make(chan bool), make(chan bool)
				s := parked(handler(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						begun <- true
						select {
						case <-proceed:
						case <-r.Context().Done():
							close(canceled)
							return
						}
					}
					fmt.Fprint(w, "done")
				}))
				url, stop := start(t, s, s.Server, secure)
				idle, c := client(t), client(t)
				get(t, idle, url)
				until(t, "the idle connection is parked", func() bool { return s.Stats().Parked == 1 })
				answer := make(chan string, 1)
				go func() {
					resp, err := c.Get(url + "/slow")
					if err != nil {
						answer <- "error"
						return
					}
					b, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					answer <- string(b)
				}()
				<-begun
				ended := make(chan error, 1)
				go func() {
					switch how {
					case "Shutdown":
						ended <- s.Shutdown(t.Context())
					case "Close":
						ended <- s.Close()
					case "Server.Shutdown":
						ended <- s.Server.Shutdown(t.Context())
					case "Server.Close":
						ended <- s.Server.Close()
					}
				}()
				if how == "Close" {
					<-canceled
					if got := <-answer; got != "error" {
						t.Errorf("answer %q", got)
					}
				} else {
					until(t, "the idle connection has ended", func() bool { return len(connsOf(s)) == 1 })
					if how == "Shutdown" {
						select {
						case err := <-ended:
							t.Errorf("Shutdown has not waited: %v", err)
						default:
						}
					}
					close(proceed)
					if got := <-answer; got != "done" {
						t.Errorf("answer %q", got)
					}
				}
				must(t, <-ended)
				if err := stop(); err != http.ErrServerClosed {
					t.Error(err)
				}
			})
		}
	})
}

func connsOf(s *park.HTTPServer) []*conn {
	h2 := s.HTTP2.(*Server)
	h2.mu.Lock()
	defer h2.mu.Unlock()
	var all []*conn
	for c := range h2.conns {
		all = append(all, c)
	}
	return all
}

// Without keep-alives, idle connections end at once, and others when their streams have ended.
func TestKeepAlives(t *testing.T) {
	s := parked(handler(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }))
	url, _ := start(t, s, s.Server, false)
	c := client(t)
	_, first := get(t, c, url)
	until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
	s.SetKeepAlivesEnabled(false)
	until(t, "the connection has ended", func() bool { return len(connsOf(s)) == 0 })
	_, second := get(t, c, url)
	until(t, "the connection has ended", func() bool { return len(connsOf(s)) == 0 })
	s.SetKeepAlivesEnabled(true)
	_, third := get(t, c, url)
	_, fourth := get(t, c, url)
	if first == second || second == third || third != fourth {
		t.Errorf("%s %s %s %s", first, second, third, fourth)
	}
}

// SetKeepAlivesEnabled of the http.Server itself calls no hook. A parked connection of HTTP/1.1
// ends after its next request, and those of HTTP/2 stay: the documents name the difference.
func TestKeepAlivesOfServer(t *testing.T) {
	s := parked(handler(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	}))
	url, _ := start(t, s, s.Server, false)
	c1, c2 := client1(t), client(t)
	_, first1 := get(t, c1, url)
	_, first2 := get(t, c2, url)
	until(t, "both connections are parked", func() bool { return s.Stats().Parked == 2 })
	s.Server.SetKeepAlivesEnabled(false)
	resp, second1 := get(t, c1, url)
	_, second2 := get(t, c2, url)
	if !resp.Close || second1 != first1 || second2 != first2 {
		t.Errorf("close %t, %s %s, want %s %s", resp.Close, second1, second2, first1, first2)
	}
	_, third1 := get(t, c1, url)
	_, third2 := get(t, c2, url)
	if third1 == first1 || third2 != first2 {
		t.Errorf("%s %s after %s %s", third1, third2, first1, first2)
	}
}

// The timeouts of the http.Server hold: IdleTimeout for parked connections, ReadHeaderTimeout for half a preface and half a
// frame.
func TestHTTPServerTimeouts(t *testing.T) {
	hs := handler(echo)
	hs.IdleTimeout = 20 * time.Millisecond
	s := parked(hs)
	url, _ := start(t, s, hs, false)
	get(t, client(t), url)
	until(t, "the idle connection has ended", func() bool { return len(connsOf(s)) == 0 })
	hs = handler(echo)
	hs.IdleTimeout, hs.ReadHeaderTimeout = timeout, 10*time.Millisecond
	url, _ = start(t, parked(hs), hs, false)
	for _, sent := range []string{"", "PRI * HTT", "G", preface + "\x00\x00\x06\x04\x00\x00"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		must(t, err)
		io.WriteString(conn, sent)
		conn.SetDeadline(time.Now().Add(timeout))
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("after %q the connection was not closed", sent)
		}
		conn.Close()
	}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// With prior knowledge the preface may come in pieces, and what is similar to it is HTTP/1.1.
func TestPreface(t *testing.T) {
	s := parked(handler(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, r.Method, r.URL) }))
	url, _ := start(t, s, s.Server, false)
	address := strings.TrimPrefix(url, "http://")
	p := dial(t, url)
	p.request(1, true)
	must(t, p.send()) // nothing follows until the answer
	p.want("1 status 200")
	for cut := range len(preface) {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		conn.SetDeadline(time.Now().Add(timeout))
		io.WriteString(conn, preface[:cut])
		await.Pause(time.Millisecond) // so that it mostly comes in two pieces
		io.WriteString(conn, preface[cut:]+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		b := make([]byte, 4)
		if _, err := io.ReadFull(conn, b); err != nil || b[3] != 4 {
			t.Errorf("cut at %d: % x, %v", cut, b, err)
		}
		conn.Close()
	}
	for _, line := range []string{"P / HTTP/1.0", "PRI / HTTP/1.0", "PRI * HTTP/1.0", "GET / HTTP/1.0"} {
		request := line + "\r\n\r\n"
		conn, err := net.Dial("tcp", address)
		must(t, err)
		conn.SetDeadline(time.Now().Add(timeout))
		for i := range len(request) {
			io.WriteString(conn, request[i:i+1])
		}
		b, err := io.ReadAll(conn)
		if want := "HTTP/1.0" + request[:strings.Index(request, " ")]; err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%q: %q, %v", request, b, err)
		}
		conn.Close()
	}
}

// A protocol that Server.Protocols does not allow is not served.
func TestProtocols(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, http1 := range []bool{false, true} {
			hs := handler(echo)
			hs.Protocols = new(http.Protocols)
			hs.Protocols.SetHTTP1(http1)
			hs.Protocols.SetHTTP2(secure && !http1)
			hs.Protocols.SetUnencryptedHTTP2(!secure && !http1)
			url, _ := start(t, parked(hs), hs, secure)
			_, err1 := client1(t).Get(url)
			_, err2 := client(t).Get(url)
			if (err1 == nil) != http1 || (err2 == nil) != !http1 {
				t.Errorf("TLS %t, HTTP/1 %t: %v; %v", secure, http1, err1, err2)
			}
		}
	}
}

// A Server that is in use is refused, and a park.HTTPServer then does not serve.
func TestAttachTwice(t *testing.T) {
	s := parked(handler(echo))
	url, stop := start(t, s, s.Server, false)
	get(t, client(t), url)
	second, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error)
	go func() { served <- s.Serve(second) }()
	get(t, client(t), "http://"+second.Addr().String()) // a second listener is no second Server
	defer func() {
		stop()
		<-served
	}()
	other := &park.HTTPServer{Server: handler(echo), HTTP2: s.HTTP2}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if err := other.Serve(ln); !errors.Is(err, socknotify.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// A server that was ended before it serves does not serve, and makes no lot that would stay open.
func TestServeAfterEnd(t *testing.T) {
	for name, end := range map[string]func(*park.HTTPServer) error{
		"Close":    (*park.HTTPServer).Close,
		"Shutdown": func(s *park.HTTPServer) error { return s.Shutdown(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := parked(handler(echo))
			s.OnLot = func(*park.Lot) { t.Error("a lot was made") }
			must(t, end(s))
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			if err := s.Serve(ln); err != http.ErrServerClosed {
				t.Error(err)
			}
			if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is open: %v", err)
			}
		})
	}
}
