//go:build linux && !race

// Package websocket measures what idle WebSocket connections cost their server. (The race detector would count its
// own memory.)
package websocket

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/park"
	socknotify "github.com/socknotify/socknotify/websocket"
)

func TestMain(m *testing.M) {
	if !playRole() {
		leaks.Main(m)
	}
}

// BenchmarkIdle measures the memory of a connection that had one message echoed and waits for the next. Two kinds of
// server have a goroutine for each: one with gobwas/ws, which buffers nothing, and one with coder/websocket, which
// buffers.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range slices.Sorted(maps.Keys(idleKinds)) {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				idling.Measure(b, kind).Report(b)
			}
		})
	}
}

// BenchmarkWake measures a message and its echo on a connection that has one in two seconds. The other server has a
// goroutine for each connection.
func BenchmarkWake(b *testing.B) {
	for _, other := range []string{"goroutine", "goroutine, coder"} {
		b.Run(other, func(b *testing.B) {
			for b.Loop() {
				idling.CompareWakes(b, other, "package websocket")
			}
		})
	}
}

// Parked WebSocket connections stay below 1,200 live bytes, like other connections.
func TestIdleMemory(t *testing.T) {
	idling.Enough(t)
	if n := idling.Measure(t, "park").Live(); n > 1200 {
		t.Errorf("%.0f bytes", n)
	}
}

// An echoServer upgrades and serves.
type echoServer struct {
	serve   http.HandlerFunc
	settled func() int
}

// gobwas upgrades by gobwas/ws.
func gobwas(serve func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w) // clients send nothing before the answer
		if err != nil {
			log.Fatal(err)
		}
		serve(conn)
	}
}

var idleKinds = map[string]func() echoServer{
	"goroutine": func() echoServer {
		var answered atomic.Int64
		return echoServer{gobwas(func(conn net.Conn) {
			go func() { // so that the goroutine of net/http ends
				defer conn.Close()
				for echo(conn) == nil {
					answered.Add(1)
				}
			}()
		}), func() int { return int(answered.Load()) }}
	},
	"goroutine, coder": func() echoServer {
		var answered atomic.Int64
		return echoServer{func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				defer conn.CloseNow()
				for {
					kind, text, err := conn.Read(context.Background())
					if err != nil || conn.Write(context.Background(), kind, text) != nil {
						return
					}
					answered.Add(1)
				}
			}()
		}, func() int { return int(answered.Load()) }}
	},
	"park": func() echoServer {
		lot, err := park.New(park.Config{})
		if err != nil {
			log.Fatal(err)
		}
		var answered atomic.Int64
		var serve func(net.Conn)
		serve = func(conn net.Conn) {
			err := echo(conn)
			if err == nil {
				err = lot.Park(conn, serve)
				answered.Add(1)
			}
			if err != nil {
				conn.Close()
			}
		}
		return echoServer{gobwas(func(conn net.Conn) {
			if lot.Park(conn, serve) != nil {
				conn.Close()
			}
		}), func() int { return min(int(answered.Load()), lot.Stats().Parked) }}
	},
	"package websocket": func() echoServer {
		s := &socknotify.Server{OnMessage: func(c *socknotify.Conn, kind socknotify.Kind, text []byte) error {
			return c.Write(kind, text)
		}}
		return echoServer{s.ServeHTTP, func() int { return s.Stats().Parked }}
	},
}

// echo is a message and its answer.
func echo(conn net.Conn) error {
	text, op, err := wsutil.ReadClientData(conn)
	if err != nil {
		return err
	}
	return wsutil.WriteServerMessage(conn, op, text)
}

func playRole() bool {
	return idling.Roles{"server": playServer, "clients": playClients, "rare load": playRareLoad}.Play()
}

func playServer(args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := idleKinds[args[0]]()
	server := &http.Server{Handler: s.serve}
	if !strings.HasPrefix(args[0], "goroutine") {
		ours := park.HTTPServer{Server: server}
		go ours.Serve(ln)
	} else {
		go server.Serve(ln)
	}
	idling.Serve(ln, s.settled)
}

func playClients(args []string) {
	idling.Connect(func() (net.Conn, error) {
		conn, err := dial(args[0])
		if err == nil {
			err = ask(conn)
		}
		return conn, err
	})
}

func playRareLoad(args []string) {
	idling.RareLoad(func() (func() error, error) {
		conn, err := dial(args[0])
		return func() error { return ask(conn) }, err
	})
}

func dial(address string) (net.Conn, error) {
	conn, in, _, err := ws.Dial(context.Background(), "ws://"+address)
	if err == nil && in != nil {
		err = fmt.Errorf("%d bytes before a message", in.Buffered())
	}
	return conn, err
}

// ask sends a message, and reads its echo.
func ask(conn net.Conn) error {
	if err := wsutil.WriteClientText(conn, []byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 3))
	return err
}
