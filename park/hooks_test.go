package park

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/traps"
)

// trapKinds are the kinds of connections of which a hook is called, and whether Unwrap is.
var trapKinds = map[string]bool{"plain": false, "wrapped": true, "TLS": true, "wrapped TLS": true}

// A trapClient talks to a server in which a trap may be sprung at any time.
type trapClient struct {
	t    *testing.T
	p    *traps.Trap
	kind string
	addr string
}

// dial returns a connection. The handshake may fail later.
func (c *trapClient) dial() net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil && c.p.Sprung() { // it was reset already
		var other net.Conn
		conn, other = net.Pipe()
		other.Close()
		return conn
	}
	must(c.t, err)
	conn.SetDeadline(time.Now().Add(2 * timeout))
	if c.kind == "TLS" || c.kind == "wrapped TLS" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn
}

// exchanged sends text, and reports whether there was an answer of n bytes.
func exchanged(conn net.Conn, text string, n int) bool {
	if _, err := io.WriteString(conn, text); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, n))
	return err == nil
}

// listener returns the listener of a server, below TLS, and Unwrap.
func (c *trapClient) listen() (net.Listener, func(net.Conn) net.Conn) {
	ln := net.Listener(newListening(c.t))
	c.addr = ln.Addr().String()
	if c.kind == "wrapped" || c.kind == "wrapped TLS" {
		ln = wrappingListener{ln, func(conn net.Conn) net.Conn { return opaqueConn{conn} }}
	}
	return ln, func(conn net.Conn) net.Conn {
		c.p.Call("Unwrap")
		if o, ok := conn.(opaqueConn); ok {
			return o.hidden
		}
		return nil
	}
}

func (c *trapClient) secure() bool { return c.kind == "TLS" || c.kind == "wrapped TLS" }

// eachTrap runs a test for each kind of connection, with each hook.
func eachTrap(t *testing.T, hooks []string, test func(t *testing.T, c *trapClient)) {
	for kind, unwraps := range trapKinds {
		all := hooks
		if unwraps {
			all = append([]string{"Unwrap"}, hooks...)
		}
		t.Run(kind, func(t *testing.T) {
			traps.Each(t, all, func(t *testing.T, p *traps.Trap) { test(t, &trapClient{t: t, p: p, kind: kind}) })
		})
	}
}

// background runs serve, and waits at the end of the test until it has returned or ended its goroutine.
func background(t *testing.T, serve func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve()
	}()
	t.Cleanup(func() { receive(t, done) })
}

// A hook of a Server that panics or calls Goexit costs one connection.
func TestServerTraps(t *testing.T) {
	eachTrap(t, []string{"Handler", "Open", "Closed"}, func(t *testing.T, c *trapClient) {
		ln, unwrap := c.listen()
		s := &Server{Logger: c.p.Logger(), Unwrap: unwrap,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
			Closed:    func(net.Conn, error) { c.p.Call("Closed") }}
		echo := func(conn net.Conn) error {
			c.p.Call("Handler")
			var b [4]byte
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return err
			}
			_, err := conn.Write(b[:])
			return err
		}
		s.Open = func(net.Conn) (func(net.Conn) error, error) {
			c.p.Call("Open")
			return echo, nil
		}
		background(t, func() {
			if c.secure() {
				s.ServeTLS(ln, "", "")
			} else {
				s.Serve(ln)
			}
		})
		c.talk("text")
		c.p.Check(t, traps.Server{Conns: func() int { return s.Stats().Conns },
			Panics: func() uint64 { return s.Stats().Panics }, Shutdown: s.Shutdown})
	})
}

// talk has a conversation of a few messages on a connection.
func (c *trapClient) talk(text string) {
	conn := c.dial()
	for range 4 {
		if !exchanged(conn, text, len(text)) {
			break
		}
	}
	if !c.p.Sprung() { // Closed, and what closes
		conn.Close()
		return
	}
	c.p.Rest(c.t, conn)
}

// A hook of Streams costs one stream, from Open and from OpenHTTP.
func TestStreamTraps(t *testing.T) {
	hooks := []string{"open", "OnInput", "OnTimer", "OnShutdown", "OnClose"}
	eachTrap(t, hooks, func(t *testing.T, c *trapClient) {
		ln, unwrap := c.listen()
		g := c.streams(unwrap)
		config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
		background(t, func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if c.secure() {
					conn = TLSServer(conn, config)
				}
				exits(func() {
					opened := false
					defer func() {
						if !opened {
							conn.Close()
						}
					}()
					s := new(Stream)
					if g.Open(s, conn) == nil {
						opened = true
						s.Start(nil, c.open)
					}
				})
			}
		})
		t.Cleanup(func() { ln.Close() })
		c.talkStreams(g, "text")
	})
}

func TestStreamHTTPTraps(t *testing.T) {
	hooks := []string{"open", "OnInput", "OnTimer", "OnShutdown", "OnClose"}
	for _, parked := range []bool{false, true} {
		eachTrap(t, hooks, func(t *testing.T, c *trapClient) {
			ln, unwrap := c.listen()
			g := c.streams(unwrap)
			srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s := new(Stream)
				received, err := g.OpenHTTP(s, w)
				if err != nil {
					t.Error(err)
					return
				}
				s.Start(received, c.open)
			}), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"http/1.1"}},
				TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
			serve, serveTLS := srv.Serve, srv.ServeTLS
			if parked {
				s := &HTTPServer{Server: srv}
				serve, serveTLS = s.Serve, s.ServeTLS
			}
			background(t, func() {
				if c.secure() {
					serveTLS(ln, "", "")
				} else {
					serve(ln)
				}
			})
			t.Cleanup(func() { srv.Close() })
			c.talkStreams(g, hello)
		})
	}
}

// exits runs f on a goroutine of its own, and waits for its end.
func exits(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (c *trapClient) open(*Stream) error { c.p.Call("open"); return nil }

func (c *trapClient) streams(unwrap func(net.Conn) net.Conn) *Streams {
	return &Streams{Logger: c.p.Logger(), Unwrap: unwrap,
		OnInput: func(s *Stream, b []byte) error {
			c.p.Call("OnInput")
			return s.Write(b)
		},
		OnTimer:    func(*Stream) time.Duration { c.p.Call("OnTimer"); return 0 },
		OnShutdown: func(s *Stream) { c.p.Call("OnShutdown"); s.Close(ErrServerClosed) },
		OnClose:    func(*Stream, error) { c.p.Call("OnClose") }}
}

// talkStreams has a conversation. first is not answered if it is a request.
func (c *trapClient) talkStreams(g *Streams, first string) {
	conn := c.dial()
	ok := true
	if first == hello {
		_, err := io.WriteString(conn, first)
		ok = err == nil
		first = "text"
	}
	for i := 0; i < 4 && ok; i++ {
		ok = exchanged(conn, first, len(first))
	}
	stats := traps.Server{Conns: func() int { return g.Stats().Conns },
		Panics: func() uint64 { return g.Stats().Panics }, Shutdown: g.Shutdown}
	if c.p.Hook == "OnShutdown" {
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.Shutdown(context.Background())
		}()
		io.Copy(io.Discard, conn)
		conn.Close()
		receive(c.t, done)
	} else if !c.p.Sprung() {
		conn.Close()
	} else {
		c.p.Rest(c.t, conn)
	}
	c.p.Check(c.t, stats)
}

// A hook of Tunnels costs one tunnel.
func TestTunnelTraps(t *testing.T) {
	eachTrap(t, []string{"OnClose"}, func(t *testing.T, c *trapClient) {
		ln, unwrap := c.listen()
		g := &Tunnels{Logger: c.p.Logger(), Unwrap: unwrap, OnClose: func(*Tunnel, error) { c.p.Call("OnClose") }}
		config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
		backend := newListening(t)
		background(t, func() {
			for {
				conn, err := backend.Accept()
				if err != nil {
					return
				}
				go func() {
					io.Copy(conn, conn)
					conn.Close()
				}()
			}
		})
		t.Cleanup(func() { backend.Close() })
		background(t, func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if c.secure() {
					conn = TLSServer(conn, config)
				}
				to, err := net.Dial("tcp", backend.Addr().String())
				must(t, err)
				exits(func() {
					if err := g.Join(conn, to); err != nil {
						t.Error(err)
					}
				})
			}
		})
		t.Cleanup(func() { ln.Close() })
		c.talk("text")
		c.p.Check(t, traps.Server{Conns: func() int { return g.Stats().Conns },
			Panics: func() uint64 { return g.Stats().Panics }, Shutdown: g.Shutdown})
	})
}

// A hook of an HTTPServer costs one connection. Those that run in a handler are net/http's.
func TestHTTPServerTraps(t *testing.T) {
	hooks := []string{"StateActive", "StateIdle", "register", "then", "StateClosed, parked"}
	eachTrap(t, hooks, func(t *testing.T, c *trapClient) {
		ln, unwrap := c.listen()
		waits := make(chan *Suspended, 10)
		s := &HTTPServer{Linger: -1, Unwrap: unwrap}
		s.Server = &http.Server{ErrorLog: log.New(c.p, "", 0),
			TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"http/1.1"}},
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
			ConnState: func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateActive:
					c.p.Call("StateActive")
				case http.StateIdle:
					c.p.Call("StateIdle")
				case http.StateClosed:
					// After a panic of it net/http would end the process, so only the lot may call it.
					if stack := make([]byte, 64<<10); !inNetHTTP(stack) {
						c.p.Call("StateClosed, parked")
					}
				}
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					Suspend(w, r, func(q *Suspended) { c.p.Call("register"); q.Resume() },
						func(w http.ResponseWriter, r *http.Request) { c.p.Call("then"); io.WriteString(w, "x") })
					return
				}
				io.WriteString(w, "x")
			})}
		background(t, func() {
			if c.secure() {
				s.ServeTLS(ln, "", "")
			} else {
				s.Serve(ln)
			}
		})
		conn := c.dial()
		in := bufio.NewReader(conn)
		ok := true
		for i := 0; i < 4 && ok; i++ {
			_, err := io.WriteString(conn, request("GET", []string{"/", "/wait"}[i%2]))
			if err == nil {
				var r *http.Response
				if r, err = http.ReadResponse(in, nil); err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
			}
			ok = err == nil
			if ok {
				waitFor(t, "parked", func() bool { return s.Stats().Parked == 1 || c.p.Sprung() })
			}
		}
		if c.p.Sprung() {
			c.p.Rest(t, conn)
		} else {
			conn.Close()
		}
		close(waits)
		c.p.Check(t, traps.Server{Conns: func() int { return s.Stats().Conns }, NetHTTP: c.p.Hook != "Unwrap",
			Panics: func() uint64 { return s.Stats().Panics }, Shutdown: s.Shutdown})
	})
}

// inNetHTTP reports whether the calling goroutine is one of net/http's connections.
func inNetHTTP(stack []byte) bool {
	n := runtime.Stack(stack, false)
	return strings.Contains(string(stack[:n]), "net/http.(*conn).serve")
}

// A Listener goes on after its hook.
func TestListenerTraps(t *testing.T) {
	for _, kind := range []string{"wrapped"} {
		traps.Each(t, []string{"Unwrap"}, func(t *testing.T, p *traps.Trap) {
			c := &trapClient{t: t, p: p, kind: kind}
			ln, unwrap := c.listen()
			l := ListenerConfig{Unwrap: unwrap, Logger: p.Logger()}.Listener(ln)
			background(t, func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						io.CopyN(conn, conn, 8)
						conn.Close()
					}()
				}
			})
			t.Cleanup(func() { l.Close() })
			for range 3 {
				conn := c.dial()
				exchanged(conn, "text", 4)
				exchanged(conn, "text", 4)
				conn.SetReadDeadline(time.Now().Add(2 * timeout))
				if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
					t.Error("the connection was left open")
				}
				conn.Close()
			}
			for n := range 2 { // the trap may be sprung by the first
				last := c.dial()
				went := exchanged(last, "text", 4)
				last.Close()
				if went {
					break
				} else if n > 0 {
					t.Error("the listener does not go on")
				}
			}
			p.Check(t, traps.Server{Conns: func() int { return l.Stats().Parked },
				Panics: func() uint64 { return l.Stats().Panics }, Shutdown: func(context.Context) error { return l.Close() }})
		})
	}
}

// Package net calls Allow and Control on goroutines of package net. A panic in them, and
// runtime.Goexit, end the handler instead.
func TestConnectProxyTraps(t *testing.T) {
	traps.Each(t, []string{"Allow", "Control"}, func(t *testing.T, p *traps.Trap) {
		backend := newListening(t)
		port := backend.Addr().(*net.TCPAddr).Port
		background(t, func() {
			for {
				conn, err := backend.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		})
		t.Cleanup(func() { backend.Close() })
		g := &Tunnels{Logger: p.Logger()}
		proxy := &ConnectProxy{Tunnels: g, Ports: []int{port}, Inside: []string{"localhost"},
			Allow: func(*http.Request, netip.AddrPort) bool { p.Call("Allow"); return true },
			Dialer: net.Dialer{Control: func(string, string, syscall.RawConn) error {
				p.Call("Control")
				return nil
			}}}
		ln := newListening(t)
		s := &HTTPServer{Server: &http.Server{Handler: proxy, ErrorLog: log.New(p, "", 0)}}
		background(t, func() { s.Serve(ln) })
		for range 2 {
			conn, err := net.Dial("tcp", ln.Addr().String())
			must(t, err)
			conn.SetDeadline(time.Now().Add(2 * timeout))
			send(t, conn, fmt.Sprintf("CONNECT localhost:%d HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", port, port))
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Error("the connection was left open")
			}
			conn.Close()
		}
		p.Check(t, traps.Server{NetHTTP: true, Conns: func() int { return g.Stats().Conns + s.Stats().Conns },
			Panics: func() uint64 { return g.Stats().Panics }, Shutdown: func(ctx context.Context) error {
				return cmp.Or(g.Shutdown(ctx), s.Shutdown(ctx))
			}})
	})
}
