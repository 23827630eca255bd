package sse

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
	"github.com/socknotify/socknotify/park"
)

func playRole() bool {
	return idling.Roles{"server": playServer, "clients": playClients}.Play()
}

// An idle client that has got an event needs at most 1,100 live bytes, and 1,700 with TLS.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 connections, twice")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Enough(t)
	for kind, limit := range map[string]float64{"park": 1100, "park TLS": 1700} {
		u := idling.Measure(t, kind, kind)
		t.Logf("%s: %.0f live bytes, %d of them stack; RSS %d", kind, u.Live(), u.Stack/int64(idling.Conns), u.RSS/int64(idling.Conns))
		if u.Live() > limit {
			t.Errorf("%s: %.0f bytes, want at most %.0f", kind, u.Live(), limit)
		}
	}
}

// BenchmarkIdle measures the memory of a server process for each idle client, beside a handler of
// net/http that waits.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"park", "park TLS", "handler", "handler TLS"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				idling.Measure(b, kind, kind).Report(b)
			}
		})
	}
}

func playServer(args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &Server{Heartbeat: time.Hour, OnOpen: func(c *Conn, _ *http.Request, _ string) error { return c.Send(Event{Data: "x"}) }}
	hs := &http.Server{Handler: s}
	cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
	if err != nil {
		panic(err)
	}
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	settled := func() int { return s.Stats().Parked }
	run, runTLS := (&park.HTTPServer{Server: hs}).Serve, (&park.HTTPServer{Server: hs}).ServeTLS
	if strings.HasPrefix(args[0], "handler") {
		var waiting atomic.Int64
		hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ContentType)
			io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			waiting.Add(1)
			<-r.Context().Done()
		})
		run, runTLS, settled = hs.Serve, hs.ServeTLS, func() int { return int(waiting.Load()) }
	}
	if strings.HasSuffix(args[0], "TLS") {
		go runTLS(ln, "", "")
	} else {
		go run(ln)
	}
	idling.Serve(ln, settled)
}

func playClients(args []string) {
	idling.Connect(func() (net.Conn, error) {
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(args[1], "TLS") {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		if _, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return nil, err
		}
		in := bufio.NewReaderSize(conn, 512)
		for line := ""; line != "data: x\n" && err == nil; line, err = in.ReadString('\n') {
		}
		return conn, err
	})
}
