package sse

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/traps"
	"github.com/socknotify/socknotify/park"
)

// hiding is a connection below which only the hook finds the socket.
type hiding struct{ hidden net.Conn }

func (c *hiding) Read(b []byte) (int, error)         { return c.hidden.Read(b) }
func (c *hiding) Write(b []byte) (int, error)        { return c.hidden.Write(b) }
func (c *hiding) Close() error                       { return c.hidden.Close() }
func (c *hiding) LocalAddr() net.Addr                { return c.hidden.LocalAddr() }
func (c *hiding) RemoteAddr() net.Addr               { return c.hidden.RemoteAddr() }
func (c *hiding) SetDeadline(t time.Time) error      { return c.hidden.SetDeadline(t) }
func (c *hiding) SetReadDeadline(t time.Time) error  { return c.hidden.SetReadDeadline(t) }
func (c *hiding) SetWriteDeadline(t time.Time) error { return c.hidden.SetWriteDeadline(t) }

type hidingListener struct{ net.Listener }

func (l hidingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hiding{c}, nil
}

// A function that panics, or calls runtime.Goexit, costs its client: nothing is left of it, and the
// server ends.
func TestTraps(t *testing.T) {
	cert, pool, err := selfcert.New(24*time.Hour, "localhost")
	must(t, err)
	for _, host := range []string{"net/http", "park"} {
		for kind, unwraps := range map[string]bool{"plain": false, "wrapped": true, "TLS": true} {
			hooks := []string{"OnOpen", "OnHeartbeat", "OnClose"}
			if unwraps {
				hooks = append(hooks, "Unwrap")
			}
			secure := kind == "TLS"
			t.Run(host+", "+kind, func(t *testing.T) {
				traps.Each(t, hooks, func(t *testing.T, p *traps.Trap) {
					s := &Server{Logger: p.Logger(), Heartbeat: 20 * time.Millisecond,
						OnOpen: func(c *Conn, _ *http.Request, _ string) error {
							p.Call("OnOpen")
							return c.Send(Event{Data: "hello"})
						},
						OnHeartbeat: func(c *Conn) { p.Call("OnHeartbeat"); c.Send(Event{Data: "beat"}) },
						OnClose:     func(*Conn, error) { p.Call("OnClose") },
						Unwrap: func(c net.Conn) net.Conn {
							p.Call("Unwrap")
							if h, ok := c.(*hiding); ok {
								return h.hidden
							}
							return nil
						}}
					ln, err := net.Listen("tcp", "127.0.0.1:0")
					must(t, err)
					addr := ln.Addr().String()
					if kind == "wrapped" {
						ln = hidingListener{ln}
					}
					srv := &http.Server{Handler: s, ErrorLog: log.New(p, "", 0),
						TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}}
					serve, serveTLS := srv.Serve, srv.ServeTLS
					if host == "park" {
						ps := &park.HTTPServer{Server: srv}
						serve, serveTLS = ps.Serve, ps.ServeTLS
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						if secure {
							serveTLS(ln, "", "")
						} else {
							serve(ln)
						}
					}()
					text := "hello"
					if p.Hook == "OnHeartbeat" {
						text = "beat"
					}
					for range 2 {
						conn, err := net.Dial("tcp", addr)
						must(t, err)
						conn.SetDeadline(time.Now().Add(soon))
						if secure {
							conn = tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "localhost"})
						}
						switch before, done := p.Sprung(), listen(conn, text); {
						case before && !done:
							t.Error("the server does not go on")
						case before || done:
							conn.Close()
						default:
							p.Rest(t, conn)
						}
					}
					p.Check(t, traps.Server{Shutdown: s.Shutdown, Conns: func() int { return s.Stats().Conns },
						Panics: func() uint64 { return s.Stats().Panics }})
					must(t, srv.Shutdown(context.Background()))
					<-ended
				})
			})
		}
	}
}

// listen asks for events. It reports whether there was one with the text.
func listen(conn net.Conn, text string) bool {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return false
		case strings.HasPrefix(line, "data: "+text):
			return true
		}
	}
}
