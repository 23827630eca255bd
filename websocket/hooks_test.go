package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/traps"
	"github.com/socknotify/socknotify/park"
)

// hiding is a connection below which only the hook finds the socket.
type hiding struct{ opaqueConn }

type hidingListener struct{ net.Listener }

func (l hidingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hiding{opaqueConn{inner: c}}, nil
}

// A hook that panics, or calls runtime.Goexit, costs its connection: nothing is left of it, and the
// server ends.
func TestTraps(t *testing.T) {
	cert, pool, err := selfcert.New(24*time.Hour, "localhost")
	must(t, err)
	for _, host := range []string{"net/http", "park"} {
		for kind, unwraps := range map[string]bool{"plain": false, "wrapped": true, "TLS": true} {
			hooks := []string{"CheckOrigin", "OnOpen", "OnMessage", "OnPong", "OnClose"}
			if unwraps {
				hooks = append(hooks, "Unwrap")
			}
			secure := kind == "TLS"
			t.Run(host+", "+kind, func(t *testing.T) {
				traps.Each(t, hooks, func(t *testing.T, p *traps.Trap) {
					s := &Server{Logger: p.Logger(), CloseTimeout: 50 * time.Millisecond,
						CheckOrigin: func(*http.Request) bool { p.Call("CheckOrigin"); return true },
						OnOpen:      func(*Conn, *http.Request) error { p.Call("OnOpen"); return nil },
						OnMessage: func(c *Conn, k Kind, b []byte) error {
							p.Call("OnMessage")
							return c.Write(k, b)
						},
						OnPong:  func(*Conn, []byte) { p.Call("OnPong") },
						OnClose: func(*Conn, error) { p.Call("OnClose") },
						Unwrap: func(c net.Conn) net.Conn {
							p.Call("Unwrap")
							if h, ok := c.(*hiding); ok {
								return h.inner
							}
							return nil
						}}
					ln, err := net.Listen("tcp", "127.0.0.1:0")
					must(t, err)
					addr := ln.Addr().String()
					if kind == "wrapped" {
						ln = hidingListener{ln}
					}
					srv := &http.Server{Handler: s, ErrorLog: stdlog.New(p, "", 0),
						TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}}
					serve, serveTLS := srv.Serve, srv.ServeTLS
					var hosts func() int
					if host == "park" {
						ps := &park.HTTPServer{Server: srv}
						serve, serveTLS = ps.Serve, ps.ServeTLS
						hosts = func() int { return ps.Stats().Conns }
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
					for range 2 {
						conn, err := net.Dial("tcp", addr)
						must(t, err)
						conn.SetDeadline(time.Now().Add(soon))
						if secure {
							conn = tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "localhost"})
						}
						switch before, done := p.Sprung(), converse(conn); {
						case before && !done:
							t.Error("the server does not go on")
						case before || done:
							conn.Close()
						default:
							p.Rest(t, conn)
						}
					}
					p.Check(t, traps.Server{NetHTTP: p.Hook == "CheckOrigin", Shutdown: s.Shutdown,
						Conns: func() int {
							n := s.Stats().Conns
							if hosts != nil {
								n += hosts()
							}
							return n
						},
						Panics: func() uint64 { return s.Stats().Panics }})
					must(t, srv.Shutdown(context.Background()))
					<-ended
				})
			})
		}
	}
}

// converse upgrades a connection and gets some answers. It reports whether it got them all.
func converse(conn net.Conn) bool {
	if _, err := io.WriteString(conn, upgradeHead+"\r\n"); err != nil {
		return false
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		return false
	}
	p := &peer{in: in}
	for range 3 {
		if _, err := conn.Write(join(frame(pong, "x"), text("y"))); err != nil {
			return false
		}
		if _, payload, err := p.read(); err != nil || payload != "y" {
			return false
		}
	}
	return true
}
