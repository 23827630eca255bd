package http2

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	streams "github.com/socknotify/socknotify/stream"
	"github.com/socknotify/socknotify/tunnel"

	"github.com/socknotify/socknotify/internal/test/traps"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// A trapServer has everything that takes a stream of HTTP/2, with hooks that call a trap.
type trapServer struct {
	p       *traps.Trap
	http    *park.HTTPServer
	streams *streams.Streams
	tunnels *tunnel.Tunnels
	events  *sse.Server
	host    net.Listener // of the tunnels
}

func newTrapServer(p *traps.Trap, host net.Listener) *trapServer {
	x := &trapServer{p: p, host: host}
	unwrap := func(net.Conn) net.Conn { p.Call("Unwrap"); return nil }
	x.streams = &streams.Streams{Logger: p.Logger(),
		OnInput: func(s *streams.Stream, b []byte) error { p.Call("OnInput"); return s.Write(b) },
		OnTimer: func(*streams.Stream) time.Duration { p.Call("OnTimer"); return 0 },
		OnClose: func(*streams.Stream, error) { p.Call("OnClose of a stream") }}
	x.tunnels = &tunnel.Tunnels{Logger: p.Logger(), OnClose: func(*tunnel.Tunnel, error) { p.Call("OnClose of a tunnel") }}
	x.events = &sse.Server{Logger: p.Logger(),
		OnOpen: func(c *sse.Conn, _ *http.Request, _ string) error {
			p.Call("OnOpen of events")
			return c.Send(sse.Event{Data: "hello"})
		},
		OnClose: func(*sse.Conn, error) { p.Call("OnClose of events") }}
	cert, _ := certificate()
	x.http = &park.HTTPServer{HTTP2: &Server{Linger: -1}, Unwrap: unwrap, Server: &http.Server{Handler: x,
		ErrorLog: log.New(p, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state != http.StateNew { // it is called by the goroutine that accepts
				p.Call("ConnState")
			}
		}}}
	return x
}

func (x *trapServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect && r.Host == "echo:1":
		s := new(streams.Stream)
		if x.streams.OpenResponse(s, w) == nil {
			s.Start(nil, func(*streams.Stream) error { x.p.Call("open"); return nil })
		}
	case r.Method == http.MethodConnect:
		conn, err := net.Dial("tcp", x.host.Addr().String())
		if err != nil {
			return
		}
		if _, err = x.tunnels.JoinResponse(w, conn, tunnel.Options{}); err != nil {
			conn.Close()
		}
	case r.URL.Path == "/events":
		x.events.ServeHTTP(w, r)
	case r.URL.Path == "/wait":
		park.Suspend(w, r, func(q *park.Suspended) { x.p.Call("register"); q.Resume() },
			func(w http.ResponseWriter, _ *http.Request, _ *park.Suspended) {
				x.p.Call("then")
				io.WriteString(w, "x")
			})
	default:
		io.WriteString(w, "x")
	}
}

// A hook that panics, or calls runtime.Goexit, costs its stream or its connection, and nothing is left
// of that.
func TestTraps(t *testing.T) {
	handled := map[string]bool{"register": true, "then": true, "ConnState": true} // as those of a handler
	traps.Each(t, []string{"Unwrap", "ConnState", "register", "then", "open", "OnInput", "OnTimer", "OnClose of a stream",
		"OnClose of a tunnel", "OnOpen of events", "OnClose of events"}, func(t *testing.T, p *traps.Trap) {
		host, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		go func() {
			for {
				conn, err := host.Accept()
				if err != nil {
					return
				}
				go func() {
					io.Copy(conn, conn)
					conn.Close()
				}()
			}
		}()
		t.Cleanup(func() { host.Close() })
		x := newTrapServer(p, host)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			x.http.ServeTLS(ln, "", "")
		}()
		addr := ln.Addr().String()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		for range 2 {
			for _, path := range []string{"/", "/wait", "/events"} {
				visit(t, transport, &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: addr, Path: path}})
			}
			for _, to := range []string{"echo:1", "tunnel:1"} {
				in, out := io.Pipe()
				go func() {
					io.WriteString(out, "text")
				}()
				visit(t, transport, &http.Request{Method: "CONNECT", Body: in, ContentLength: -1, Host: to,
					URL: &url.URL{Scheme: "https", Host: addr}})
				in.Close()
			}
		}
		transport.CloseIdleConnections()
		p.Check(t, traps.Server{NetHTTP: handled[p.Hook],
			Conns: func() int {
				return x.http.Stats().Conns + x.streams.Stats().Conns + x.tunnels.Stats().Conns + x.events.Stats().Conns
			},
			Panics: func() uint64 {
				return x.http.Stats().Panics + x.streams.Stats().Panics + x.tunnels.Stats().Panics + x.events.Stats().Panics
			},
			Shutdown: func(ctx context.Context) error {
				for _, f := range []func(context.Context) error{x.streams.Shutdown, x.tunnels.Shutdown, x.events.Shutdown, x.http.Shutdown} {
					if err := f(ctx); err != nil {
						return err
					}
				}
				return nil
			}})
		<-served
	})
}

// visit sends a request, and reads the beginning of the answer, or its end. One that neither begins
// nor ends fails the test.
func visit(t *testing.T, transport *http.Transport, r *http.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r.Header = make(http.Header)
	res, err := transport.RoundTrip(r.WithContext(ctx))
	if err == nil {
		_, err = io.ReadAtLeast(res.Body, make([]byte, 100), 1)
		res.Body.Close()
	}
	if ctx.Err() != nil {
		t.Error(fmt.Sprint(r.Method, " ", r.URL, ": ", err))
	}
}
