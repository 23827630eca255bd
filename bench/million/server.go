//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// A kind is a server, and what its clients send and get.
type kind struct {
	secure bool
	serve  func(l net.Listener) served

	first, ask        []byte // the first request, and a later one; nil if there is none
	answer, answerAsk string // how their answers end
	all               string // how a message to all ends, if there is one
}

// Served is a server that serves.
type served struct {
	idle func() int // the number of connections that wait
	all  func() int // sends a message to all, and returns to how many
}

const (
	get      = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	upgrade  = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	pageText = "hello, waiting world"
	news     = "news for all"
)

// names are the kinds in the order in which they are measured.
var names = []string{"park", "park TLS", "sse", "websocket", "net/http", "net/http TLS"}

var kinds = map[string]*kind{
	"park":         page(false, servePark(false)),
	"park TLS":     page(true, servePark(true)),
	"net/http":     page(false, serveStock(false)),
	"net/http TLS": page(true, serveStock(true)),
	"sse":          {serve: serveEvents, first: []byte(get), answer: "\n", all: news + "\n\n"},
	"websocket": {
		serve: serveWebSocket,
		first: []byte(strings.TrimSuffix(get, "\r\n") + upgrade + "\r\n"), answer: "\r\n\r\n",
		ask: []byte("\x81\x85\x00\x00\x00\x00hello"), answerAsk: "\x81\x05hello",
		all: news,
	},
}

// page is a kind whose clients get a page.
func page(secure bool, serve func(net.Listener) served) *kind {
	return &kind{secure: secure, serve: serve, first: []byte(get), answer: pageText, ask: []byte(get), answerAsk: pageText}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, pageText) })

// secureConfig returns the configuration of a server with TLS, and nil for one without.
func secureConfig(secure bool) *tls.Config {
	if !secure {
		return nil
	}
	cert, _, err := selfcert.New(24*time.Hour, "localhost")
	must(err)
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

func servePark(secure bool) func(net.Listener) served {
	return func(l net.Listener) served {
		s := &park.HTTPServer{Server: &http.Server{Handler: hello, TLSConfig: secureConfig(secure)}}
		if secure {
			go func() { log.Fatal(s.ServeTLS(l, "", "")) }()
		} else {
			go func() { log.Fatal(s.Serve(l)) }()
		}
		return served{idle: func() int { return s.Stats().Parked }}
	}
}

func serveStock(secure bool) func(net.Listener) served {
	return func(l net.Listener) served {
		var idle atomic.Int64
		s := &http.Server{Handler: hello, TLSConfig: secureConfig(secure)}
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateIdle { // no client asks twice before all are idle
				idle.Add(1)
			}
		}
		if secure {
			go func() { log.Fatal(s.ServeTLS(l, "", "")) }()
		} else {
			go func() { log.Fatal(s.Serve(l)) }()
		}
		return served{idle: func() int { return int(idle.Load()) }}
	}
}

// serveEvents serves Server-Sent Events. Its clients read nothing while they wait, so they get no heartbeats.
func serveEvents(l net.Listener) served {
	s := &sse.Server{Heartbeat: -1}
	m, err := sse.Prepare(sse.Event{Data: news})
	must(err)
	go func() { log.Fatal((&park.HTTPServer{Server: &http.Server{Handler: s}}).Serve(l)) }()
	return served{func() int { return s.Stats().Parked }, func() int { return s.Broadcast(m) }}
}

// serveWebSocket serves an echo. Its clients read nothing while they wait, so they get no pings.
func serveWebSocket(l net.Listener) served {
	s := &websocket.Server{
		PingInterval: -1,
		OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
			return c.Write(kind, payload)
		},
	}
	m, err := s.Prepare(websocket.Text, []byte(news))
	must(err)
	go func() { log.Fatal((&park.HTTPServer{Server: &http.Server{Handler: s}}).Serve(l)) }()
	return served{func() int { return s.Stats().Parked }, func() int { return s.Broadcast(m) }}
}

// serve is the server's process. It answers the questions of measure.
func serve(k *kind, probes bool) {
	config := net.ListenConfig{}
	if !probes {
		config.KeepAlive = -1
	}
	l, err := config.Listen(context.Background(), "tcp4", ":0")
	must(err)
	s := k.serve(l)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "port":
			fmt.Println(l.Addr().(*net.TCPAddr).Port)
		case "idle":
			fmt.Println(s.idle())
		case "resident":
			fmt.Println(resident())
		case "usage":
			runtime.GC()
			began := time.Now()
			runtime.GC()
			collection := time.Since(began)
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println(m.HeapAlloc+m.StackInuse, resident(), int64(collection))
		case "cpu":
			var u unix.Rusage
			must(unix.Getrusage(unix.RUSAGE_SELF, &u))
			fmt.Println(u.Utime.Nano() + u.Stime.Nano())
		case "all":
			fmt.Println(s.all())
		}
	}
}

func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	must(err)
	var size, pages int64
	_, err = fmt.Sscan(string(b), &size, &pages)
	must(err)
	return pages * int64(os.Getpagesize())
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
