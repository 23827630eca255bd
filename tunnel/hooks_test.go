package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/traps"
)

// A hook of Tunnels costs one tunnel.
func TestTunnelTraps(t *testing.T) {
	traps.EachKind(t, []string{"OnClose"}, func(t *testing.T, c *traps.Client) {
		ln, unwrap := c.Listen()
		g := &Tunnels{Logger: c.P.Logger(), Unwrap: unwrap, OnClose: func(*Tunnel, error) { c.P.Call("OnClose") }}
		config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
		backend := conntest.Listen(t)
		traps.Background(t, func() {
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
		traps.Background(t, func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if c.Secure() {
					conn = park.TLSServer(conn, config)
				}
				to, err := net.Dial("tcp", backend.Addr().String())
				check.OK(t, err)
				traps.Exits(func() {
					if err := g.Join(conn, to); err != nil {
						t.Error(err)
					}
				})
			}
		})
		t.Cleanup(func() { ln.Close() })
		c.Talk("text")
		c.P.Check(t, traps.Server{Conns: func() int { return g.Stats().Conns },
			Panics: func() uint64 { return g.Stats().Panics }, Shutdown: g.Shutdown})
	})
}

// Package net calls Allow and Control on goroutines of package net. A panic in them, and
// runtime.Goexit, end the handler instead.
func TestConnectProxyTraps(t *testing.T) {
	traps.Each(t, []string{"Allow", "Control"}, func(t *testing.T, p *traps.Trap) {
		backend := conntest.Listen(t)
		port := backend.Addr().(*net.TCPAddr).Port
		traps.Background(t, func() {
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
		ln := conntest.Listen(t)
		s := &park.HTTPServer{Server: &http.Server{Handler: proxy, ErrorLog: log.New(p, "", 0)}}
		traps.Background(t, func() { s.Serve(ln) })
		for range 2 {
			conn, err := net.Dial("tcp", ln.Addr().String())
			check.OK(t, err)
			conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
			conntest.Send(t, conn, fmt.Sprintf("CONNECT localhost:%d HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", port, port))
			if _, err := io.Copy(io.Discard, conn); serving.IsTimeout(err) {
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
