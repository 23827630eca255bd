package stream

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/internal/test/traps"
)

// A hook of Streams costs one stream, from Open and from OpenHTTP.
func TestStreamTraps(t *testing.T) {
	hooks := []string{"open", "OnInput", "OnTimer", "OnShutdown", "OnClose"}
	traps.EachKind(t, hooks, func(t *testing.T, c *traps.Client) {
		ln, unwrap := c.Listen()
		g := streamTraps(c, unwrap)
		config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
		traps.Background(t, func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if c.Secure() {
					conn = park.TLSServer(conn, config)
				}
				traps.Exits(func() {
					opened := false
					defer func() {
						if !opened {
							conn.Close()
						}
					}()
					s := new(Stream)
					if g.Open(s, conn) == nil {
						opened = true
						s.Start(nil, openTrap(c))
					}
				})
			}
		})
		t.Cleanup(func() { ln.Close() })
		talkStreams(c, g, "text")
	})
}

func TestStreamHTTPTraps(t *testing.T) {
	hooks := []string{"open", "OnInput", "OnTimer", "OnShutdown", "OnClose"}
	for _, parked := range []bool{false, true} {
		traps.EachKind(t, hooks, func(t *testing.T, c *traps.Client) {
			ln, unwrap := c.Listen()
			g := streamTraps(c, unwrap)
			srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s := new(Stream)
				received, err := g.OpenHTTP(s, w)
				if err != nil {
					t.Error(err)
					return
				}
				s.Start(received, openTrap(c))
			}), TLSConfig: &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}, NextProtos: []string{"http/1.1"}},
				TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
			serve, serveTLS := srv.Serve, srv.ServeTLS
			if parked {
				s := &park.HTTPServer{Server: srv}
				serve, serveTLS = s.Serve, s.ServeTLS
			}
			traps.Background(t, func() {
				if c.Secure() {
					serveTLS(ln, "", "")
				} else {
					serve(ln)
				}
			})
			t.Cleanup(func() { srv.Close() })
			talkStreams(c, g, httpcorpus.Hello)
		})
	}
}

func openTrap(c *traps.Client) func(*Stream) error {
	return func(*Stream) error { c.P.Call("open"); return nil }
}

func streamTraps(c *traps.Client, unwrap func(net.Conn) net.Conn) *Streams {
	return &Streams{Logger: c.P.Logger(), Unwrap: unwrap,
		OnInput: func(s *Stream, b []byte) error {
			c.P.Call("OnInput")
			return s.Write(b)
		},
		OnTimer:    func(*Stream) time.Duration { c.P.Call("OnTimer"); return 0 },
		OnShutdown: func(s *Stream) { c.P.Call("OnShutdown"); s.Close(park.ErrServerClosed) },
		OnClose:    func(*Stream, error) { c.P.Call("OnClose") }}
}

// talkStreams has a conversation. first is not answered if it is a request.
func talkStreams(c *traps.Client, g *Streams, first string) {
	conn := c.Dial()
	ok := true
	if first == httpcorpus.Hello {
		_, err := io.WriteString(conn, first)
		ok = err == nil
		first = "text"
	}
	for i := 0; i < 4 && ok; i++ {
		ok = traps.Exchanged(conn, first, len(first))
	}
	stats := traps.Server{Conns: func() int { return g.Stats().Conns },
		Panics: func() uint64 { return g.Stats().Panics }, Shutdown: g.Shutdown}
	if c.P.Hook == "OnShutdown" {
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.Shutdown(context.Background())
		}()
		io.Copy(io.Discard, conn)
		conn.Close()
		await.Value(c.T, done)
	} else if !c.P.Sprung() {
		conn.Close()
	} else {
		c.P.Rest(c.T, conn)
	}
	c.P.Check(c.T, stats)
}
