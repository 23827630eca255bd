package park

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
)

// failures are the ways in which a callback may end without returning.
var failures = map[string]func(){
	"panic":            func() { panic("callback panics") },
	"panic of error":   func() { panic(io.ErrUnexpectedEOF) },
	"ErrAbortHandler":  func() { panic(http.ErrAbortHandler) },
	"runtime.Goexit":   runtime.Goexit,
	"nil dereference":  func() { var c *tls.Conn; c.Close() },
	"returns normally": func() {},
}

// A signer is a private key whose Sign method is a callback.
type signer struct {
	crypto.Signer
	end func()
}

func (s signer) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	s.end()
	return s.Signer.Sign(r, digest, opts)
}

// callbacks maps each callback of a server's tls.Config to a function that makes it call end. KeyLogWriter is left
// out: after a panic in it package tls never releases a lock, with net/http too.
var callbacks = map[string]func(c *tls.Config, end func()){
	"GetConfigForClient": func(c *tls.Config, end func()) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.Context().Value(http.LocalAddrContextKey) == nil || h.Context().Value(http.ServerContextKey) == nil {
				return nil, fmt.Errorf("the values of net/http are missing in the context")
			}
			end()
			return nil, nil
		}
	},
	"GetCertificate": func(c *tls.Config, end func()) {
		cert := c.Certificates[0]
		c.Certificates = nil
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { end(); return &cert, nil }
	},
	"VerifyPeerCertificate": func(c *tls.Config, end func()) {
		c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { end(); return nil }
	},
	"VerifyConnection": func(c *tls.Config, end func()) {
		c.VerifyConnection = func(tls.ConnectionState) error { end(); return nil }
	},
	"WrapSession": func(c *tls.Config, end func()) {
		c.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { end(); return []byte("ticket"), nil }
	},
	"Sign": func(c *tls.Config, end func()) {
		cert := &c.Certificates[0]
		cert.PrivateKey = signer{cert.PrivateKey.(crypto.Signer), end}
	},
	"Time": func(c *tls.Config, end func()) {
		c.Time = func() time.Time { end(); return time.Now() }
	},
}

// A handshakeResult is what a client and the hooks of a server observe of a handshake.
type handshakeResult struct {
	records   string // the types of the server's TLS records
	handshake string // the answer or the error
	states    []http.ConnState
	log       string
}

// A callback of package tls that panics or calls runtime.Goexit costs one connection. The client, the hooks and the log
// receive the same from an HTTPServer as from net/http.
func TestHTTPCallbackPanics(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for callback, set := range callbacks {
			for ending, end := range failures {
				t.Run(fmt.Sprint(tls.VersionName(version), "/", callback, "/", ending), func(t *testing.T) {
					want := handshakeOnce(t, version, set, end, false)
					got := handshakeOnce(t, version, set, end, true)
					if got.records != want.records || got.handshake != want.handshake || got.log != want.log ||
						!slices.Equal(got.states, want.states) {
						t.Errorf("got\n%+v, want\n%+v", got, want)
					}
					panics := strings.HasPrefix(ending, "panic") || strings.HasPrefix(ending, "nil")
					if logged := strings.HasPrefix(want.log, "log: http: panic serving address: "); logged != panics {
						t.Errorf("net/http logs %q", want.log)
					}
				})
			}
		}
	}
}

// handshakeOnce makes one connection to a server in which a callback ends by calling end.
func handshakeOnce(t *testing.T, version uint16, set func(*tls.Config, func()), end func(), ours bool) handshakeResult {
	t.Helper()
	var first, called atomic.Bool
	first.Store(true)
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}, MaxVersion: version,
		ClientAuth: tls.RequireAnyClientCert}
	set(config, func() {
		called.Store(true)
		if first.Load() {
			end()
		}
	})
	var logged conntest.Log
	var mu sync.Mutex
	states := make(map[net.Conn][]http.ConnState)
	var order []net.Conn
	srv := &http.Server{Handler: httpcorpus.Handler(), ErrorLog: log.New(&logged, "log: ", 0), TLSConfig: config,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ConnState: func(conn net.Conn, state http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			if state == http.StateNew {
				order = append(order, conn)
			}
			states[conn] = append(states[conn], state)
		}}
	ended := func(i int) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(order) <= i {
			return false
		}
		s := states[order[i]]
		return s[len(s)-1] == http.StateClosed
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	serve, shutdown := srv.ServeTLS, srv.Shutdown
	if ours {
		s := &HTTPServer{Server: srv, Linger: -1}
		serve, shutdown = s.ServeTLS, s.Shutdown
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln, "", "") }()

	visit := func() (h handshakeResult) {
		conn, err := net.Dial("tcp", ln.Addr().String())
		check.OK(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(conntest.Timeout))
		var got bytes.Buffer
		c := tls.Client(teeConn{conn, &got}, &tls.Config{InsecureSkipVerify: true, MaxVersion: version,
			Certificates: []tls.Certificate{conntest.Certificate(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(1)})
		var said []byte
		if err = c.Handshake(); err == nil {
			io.WriteString(c, request("GET", "/hello", "Connection: close"))
			said, err = io.ReadAll(c)
		}
		for b := got.Bytes(); len(b) >= 5; b = b[min(len(b), 5+int(b[3])<<8+int(b[4])):] {
			h.records += fmt.Sprint(b[0], " ")
		}
		// If the server closes the connection before it has read the request, the connection is reset.
		if conntest.Resets.MatchString(fmt.Sprint(err)) {
			err = nil
		}
		h.handshake = httpcorpus.MaskDates(fmt.Sprintf("%s %v", said, err))
		return h
	}
	h := visit()
	await.Until(t, "the connection is closed", func() bool { return ended(0) })
	mu.Lock()
	h.states = slices.Clone(states[order[0]])
	mu.Unlock()
	h.log = logged.String()
	if !called.Load() {
		t.Error("the callback was not called")
	}
	first.Store(false)
	if next := visit(); !strings.Contains(next.handshake, "hello") {
		t.Errorf("the next connection: %+v", next)
	}
	await.Until(t, "the next is closed", func() bool { return ended(1) })
	ctx, cancel := context.WithTimeout(t.Context(), conntest.Timeout)
	defer cancel()
	check.OK(t, shutdown(ctx))
	check.Is(t, await.Value(t, served), http.ErrServerClosed)
	return h
}

// A teeConn records the bytes that are read.
type teeConn struct {
	net.Conn
	to *bytes.Buffer
}

func (c teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.to.Write(p[:n])
	return n, err
}

// A panic in a hook, in each state in which the hook is called, has the same effect as with net/http.
func TestHTTPHookPanics(t *testing.T) {
	for _, state := range []http.ConnState{http.StateActive, http.StateIdle, http.StateHijacked} {
		for ending, end := range failures {
			for _, later := range []bool{false, true} {
				t.Run(fmt.Sprint(state, "/", ending, "/later ", later), func(t *testing.T) {
					var logs [2]conntest.Log
					var got [2]string
					var states [2][]http.ConnState
					for i := range 2 {
						var armed atomic.Bool
						armed.Store(!later)
						r := newExchangeServer(t, false, i == 1, "", -1, func(srv *http.Server) {
							srv.ErrorLog = log.New(&logs[i], "log: ", 0)
							note := srv.ConnState
							srv.ConnState = func(conn net.Conn, s http.ConnState) {
								note(conn, s)
								if s == state && armed.Load() {
									end()
								}
							}
						})
						var steps []step
						if later {
							steps = []step{sends(hello), answers("GET", 1), waitIdle, func(*exchangeRun) { armed.Store(true) }}
						}
						text := hello
						if state == http.StateHijacked {
							text = request("GET", "/hijack")
						}
						if state == http.StateHijacked && ending != "returns normally" {
							// The handler has hijacked the connection, so the server
							// does not close it.
							continue
						}
						got[i], states[i] = r.run(t, append(steps, sends(text)))
					}
					if got[0] != got[1] || !slices.Equal(states[0], states[1]) || logs[0].String() != logs[1].String() {
						t.Errorf("got %q %v\n%s, want %q %v\n%s", got[1], states[1], &logs[1], got[0], states[0], &logs[0])
					}
				})
			}
		}
	}
}

// The listener's Accept, BaseContext, ConnContext, ConnState with StateNew, and OnLot run on the goroutine that called
// Serve. So its caller can recover from a panic in them, and runtime.Goexit ends that goroutine.
func TestHTTPServePanics(t *testing.T) {
	for what, set := range map[string]func(s *HTTPServer, end func()){
		"Accept": func(*HTTPServer, func()) {},
		"BaseContext": func(s *HTTPServer, end func()) {
			s.Server.BaseContext = func(net.Listener) context.Context { end(); return context.Background() }
		},
		"ConnContext": func(s *HTTPServer, end func()) {
			s.Server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { end(); return ctx }
		},
		"nil ConnContext": func(s *HTTPServer, end func()) {
			s.Server.ConnContext = func(context.Context, net.Conn) context.Context { return nil }
		},
		"nil BaseContext": func(s *HTTPServer, end func()) {
			s.Server.BaseContext = func(net.Listener) context.Context { return nil }
		},
		"ConnState": func(s *HTTPServer, end func()) {
			s.Server.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					end()
				}
			}
		},
		"OnLot": func(s *HTTPServer, end func()) { s.OnLot = func(*Lot) { end() } },
	} {
		for _, ending := range []string{"panic", "runtime.Goexit"} {
			t.Run(what+"/"+ending, func(t *testing.T) {
				serve := func(ours bool) string {
					srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
					s := &HTTPServer{Server: srv, Linger: -1}
					set(s, failures[ending])
					inner, err := net.Listen("tcp", "127.0.0.1:0")
					check.OK(t, err)
					var ln net.Listener = inner
					if what == "Accept" {
						ln = failingListener{ln, failures[ending]}
					}
					result := make(chan string, 1)
					go func() {
						said := "ended"
						defer func() { result <- said }()
						defer func() {
							if v := recover(); v != nil {
								said = fmt.Sprint("panic: ", v)
							}
						}()
						if ours {
							err = s.Serve(ln)
						} else {
							err = srv.Serve(ln)
						}
						said = fmt.Sprint("returned ", err)
					}()
					conn, err := net.Dial("tcp", inner.Addr().String())
					if err == nil {
						defer conn.Close()
					}
					said := await.Value(t, result)
					if _, err := inner.Accept(); err == nil {
						t.Error("the listener is still open")
					}
					check.OK(t, srv.Close())
					return said
				}
				got := serve(true)
				if what == "OnLot" { // net/http has no such hook
					if want := map[string]string{"panic": "panic: callback panics", "runtime.Goexit": "ended"}[ending]; got != want {
						t.Errorf("%s, want %s", got, want)
					}
					return
				}
				if want := serve(false); got != want || strings.HasPrefix(got, "returned") {
					t.Errorf("%s, want %s", got, want)
				}
			})
		}
	}
}

// A failingListener is a listener whose Accept ends without returning.
type failingListener struct {
	net.Listener
	end func()
}

func (l failingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		conn.Close()
		l.end()
	}
	return conn, err
}

// A failingConn is a connection whose Read, or SetReadDeadline, ends without returning once it is armed.
type failingConn struct {
	net.Conn
	read, deadline *atomic.Bool
	end            func()
}

func (c *failingConn) NetConn() net.Conn { return c.Conn }

func (c *failingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.read.Load() {
		c.end()
	}
	return n, err
}

func (c *failingConn) SetReadDeadline(at time.Time) error {
	if c.deadline.Load() && !at.IsZero() {
		c.end()
	}
	return c.Conn.SetReadDeadline(at)
}

type failingConnListener struct {
	net.Listener
	as *failingConn
}

func (l failingConnListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := *l.as
	c.Conn = conn
	return &c, nil
}

// If a method of the connection panics, the connection is closed and the panic is logged, as with net/http. That is
// tested for the Read of a parked connection, and for the interrupt of a lingering one.
func TestHTTPConnPanics(t *testing.T) {
	for ending, end := range failures {
		if ending == "returns normally" {
			continue
		}
		t.Run(ending, func(t *testing.T) {
			var logged conntest.Log
			f := &failingConn{read: new(atomic.Bool), deadline: new(atomic.Bool), end: end}
			s := newTestServer(t, func(s *HTTPServer) { s.Server.ErrorLog = log.New(&logged, "log: ", 0) },
				func(s *HTTPServer, ln net.Listener) error { return s.Serve(failingConnListener{ln, f}) })
			conn, in := s.request()
			await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
			f.read.Store(true)
			conntest.Send(t, conn, hello)
			if _, err := in.ReadByte(); err == nil {
				t.Fatal("got an answer, want none")
			}
			await.Until(t, "closed", func() bool { return s.closedCount(1) == 1 })
			f.read.Store(false)
			want := map[string]string{
				"panic":           "log: http: panic serving address: callback panics\na stack",
				"panic of error":  "log: http: panic serving address: unexpected EOF\na stack",
				"nil dereference": "log: http: panic serving address: runtime error: invalid memory address or nil pointer dereference\na stack",
			}[ending]
			if got := logged.String(); strings.TrimSpace(got) != want {
				t.Errorf("logged %q, want %q", got, want)
			}
			_, in = s.request() // the server continues
			await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 })
			check.OK(t, s.Shutdown(t.Context()))
			if _, err := in.ReadByte(); err == nil {
				t.Fatal("got an answer, want none")
			}
		})
	}
	t.Run("lingering", func(t *testing.T) {
		var logged conntest.Log
		f := &failingConn{read: new(atomic.Bool), deadline: new(atomic.Bool), end: failures["panic"]}
		s := newTestServer(t, func(s *HTTPServer) {
			s.Server.ErrorLog = log.New(&logged, "log: ", 0)
			s.Linger = 50 * time.Millisecond
		}, func(s *HTTPServer, ln net.Listener) error { return s.Serve(failingConnListener{ln, f}) })
		conn, in := s.request()
		f.deadline.Store(true)
		await.Until(t, "logged", func() bool {
			if s.Stats().Parked == 1 { // it had lingered before
				f.deadline.Store(false)
				s.ask(conn, in)
				f.deadline.Store(true)
			}
			return logged.String() != ""
		})
		f.deadline.Store(false)
		conn.Close()
		await.Until(t, "closed", func() bool { return s.closedCount(1) == 1 })
	})
}
